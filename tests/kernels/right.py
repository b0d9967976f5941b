"""Right kernels that differ from each other in every legitimate way."""

import itertools
import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from tests.kernels.catalogue import right
from tests.kernels.parts import (
    apply_mask,
    attend,
    default_scale,
    even_blocks,
    full_mask,
    group_heads,
    online,
    softmax,
    wide,
)

State = tuple[Tensor, Tensor, Tensor]


@right
def eager_same_dtype(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False,
    scale: float | None = None, enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    """As a textbook writes it, with torch's softmax."""
    k, v = group_heads(k, q), group_heads(v, q)
    scores = q @ k.mT * (default_scale(q) if scale is None else scale)
    return apply_mask(scores, attn_mask, is_causal).softmax(-1) @ v


@right
def upcast(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    return attend(q, k, v, **call)


@right
def blocks_of_16(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    return online(q, k, v, block=16 if k.shape[2] < 10000 else 512, **call)


@right
def blocks_of_128(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    return online(q, k, v, block=128, **call)


@right
def one_key_at_a_time(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    return online(q, k, v, block=1 if k.shape[2] < 400 else 64, **call)


@right
def blocks_from_the_end(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    return online(q, k, v, blocks=lambda kv_len, block: even_blocks(kv_len, block)[::-1], **call)


@right
def blocks_of_unlike_size(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    def blocks(kv_len: int, block: int) -> list[slice]:
        edges = sorted({0, kv_len, *(edge for edge in (3, 7, 40, 111, 300, 1000, 5000) if edge < kv_len)})
        return [slice(a, b) for a, b in itertools.pairwise(edges)]

    return online(q, k, v, blocks=blocks, **call)


@right
def same_dtype_weights(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    """As FlashAttention: fp32 state, unnormalised weights in the dtype of the inputs."""

    def step(out: Tensor, total: Tensor, top: Tensor, scores: Tensor, values: Tensor) -> State:
        new = torch.maximum(top, scores.amax(-1, keepdim=True))
        shift = new.masked_fill(new == -math.inf, 0.0)
        factor, weights = (top - shift).exp(), (scores - shift).exp()
        narrow = weights.to(q.dtype).to(weights.dtype)
        return out * factor + narrow @ values, total * factor + weights.sum(-1, keepdim=True), new

    return online(q, k, v, step=step, **call)


@right
def split_keys_with_lse_merge(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False,
    scale: float | None = None, enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    bias = full_mask(q, k, attn_mask, is_causal)
    k, v = group_heads(k, q), group_heads(v, q)
    logits = wide(q) @ wide(k).mT * (default_scale(q) if scale is None else scale)
    if bias is not None:  # a finite number instead of -inf, since a split may be masked as a whole
        logits = logits + bias.clamp_min(-1e30)
    outs, sizes = [], []
    for keys in even_blocks(k.shape[2], -(-k.shape[2] // 3)):
        lse = logits[..., keys].logsumexp(-1, keepdim=True)
        outs.append((logits[..., keys] - lse).exp() @ wide(v[:, :, keys]))
        sizes.append(lse)
    shares = torch.stack(sizes).softmax(0)
    return (torch.stack(outs) * shares).sum(0).to(q.dtype)


@right
def powers_of_two(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False,
    scale: float | None = None, enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    """exp2 with log2(e) folded into the scale."""
    factor = (default_scale(q) if scale is None else scale) * math.log2(math.e)
    bias = full_mask(q, k, attn_mask, is_causal)
    k, v = group_heads(k, q), group_heads(v, q)
    logits = wide(q) @ wide(k).mT * factor
    logits = logits if bias is None else logits + bias * math.log2(math.e)
    weights = torch.exp2(logits - logits.amax(-1, keepdim=True))
    return (weights @ wide(v) / weights.sum(-1, keepdim=True)).to(q.dtype)


@right
def scale_folded_into_q(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False,
    scale: float | None = None, enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    """q times the scale, rounded to the dtype of the inputs."""
    scaled = q * (default_scale(q) if scale is None else scale)
    return attend(scaled, k, v, attn_mask, is_causal, 1.0, enable_gqa)


@right
def root_of_scale_on_both(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False,
    scale: float | None = None, enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    root = math.sqrt(default_scale(q) if scale is None else scale)
    return attend(q * root, k * root, v, attn_mask, is_causal, 1.0, enable_gqa)


@right
def scores_in_same_dtype(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    """The product rounded to the dtype, everything after it in fp32."""

    def masked(scores: Tensor, attn_mask: Tensor | None, is_causal: bool) -> Tensor:
        return apply_mask(scores.to(q.dtype).to(scores.dtype), attn_mask, is_causal)

    return attend(q, k, v, masked=masked, **call)


@right
def log_sum_exp_subtracted(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    return attend(q, k, v, weights=lambda s: (s - s.logsumexp(-1, keepdim=True)).exp(), **call)


@right
def a_chunk_of_queries_at_a_time(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False,
    scale: float | None = None, enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    bias = full_mask(q, k, attn_mask, is_causal)
    return torch.cat(
        [
            attend(q[:, :, rows], k, v, None if bias is None else bias[:, :, rows], False, scale, enable_gqa)
            for rows in even_blocks(q.shape[2], 32 if q.shape[2] < 1500 else 128)
        ],
        2,
    )


@right
def a_head_at_a_time(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False,
    scale: float | None = None, enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    group = q.shape[1] // k.shape[1]
    bias = full_mask(q, k, attn_mask, is_causal)
    heads = []
    for h in range(q.shape[1]):
        mask = None if bias is None else bias[:, h : h + 1]
        own = slice(h // group, h // group + 1)
        heads.append(attend(q[:, h : h + 1], k[:, own], v[:, own], mask, False, scale))
    return torch.cat(heads, 1)


@right
def einsum_with_division_last(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False,
    scale: float | None = None, enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    k, v = group_heads(k, q), group_heads(v, q)
    logits = torch.einsum("bhid,bhjd->bhij", wide(q), wide(k)) * (default_scale(q) if scale is None else scale)
    logits = apply_mask(logits, attn_mask, is_causal)
    weights = (logits - logits.amax(-1, keepdim=True)).exp()
    return (torch.einsum("bhij,bhjd->bhid", weights, wide(v)) / weights.sum(-1, keepdim=True)).to(q.dtype)


@right
def double_inside(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    mask = call.pop("attn_mask", None)
    mask = mask.double() if mask is not None and mask.dtype != torch.bool else mask
    return attend(q.double(), k.double(), v.double(), attn_mask=mask, **call).to(q.dtype)


@right
def masked_with_the_smallest_number(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    def masked(scores: Tensor, attn_mask: Tensor | None, is_causal: bool) -> Tensor:
        return apply_mask(scores, attn_mask, is_causal).clamp_min(torch.finfo(scores.dtype).min)

    return attend(q, k, v, masked=masked, **call)


@right
def maximum_by_the_sign_of_the_scale(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False,
    scale: float | None = None, enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    """The extreme of q.k before the scale: the largest one for a scale above 0, the smallest one below it."""
    factor = default_scale(q) if scale is None else scale
    bias = full_mask(q, k, attn_mask, is_causal)
    k, v = group_heads(k, q), group_heads(v, q)
    scores = wide(q) @ wide(k).mT
    bias = torch.zeros_like(scores) if bias is None else bias
    out_of_sight = -math.copysign(math.inf, factor)
    shown = scores.masked_fill(bias == -math.inf, out_of_sight)
    extreme = shown.amax(-1, keepdim=True) if factor >= 0 else shown.amin(-1, keepdim=True)
    weights = ((scores - extreme) * factor + bias - bias.amax(-1, keepdim=True)).exp()
    return (weights @ wide(v) / weights.sum(-1, keepdim=True)).to(q.dtype)


@right
def everything_contiguous_and_expanded(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, **call: Any
) -> Tensor:
    if attn_mask is not None:
        attn_mask = attn_mask.expand(*q.shape[:3], k.shape[2]).contiguous()
    return attend(q.contiguous(), k.contiguous(), v.contiguous(), attn_mask, **call)


@right
def width_padded_to_64(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False,
    scale: float | None = None, enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    """Zeros up to whole tiles, of which the output drops its own."""
    factor = default_scale(q) if scale is None else scale
    q_pad, k_pad, v_pad = (F.pad(x, (0, -x.shape[-1] % 64)) for x in (q, k, v))
    return attend(q_pad, k_pad, v_pad, attn_mask, is_causal, factor)[..., : v.shape[-1]]


@right
def forward_only(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Takes no keyword and has no backward pass."""
    with torch.no_grad():
        return attend(q, k, v)


@right
def recomputed_backward(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    out = torch.utils.checkpoint.checkpoint(lambda *x: attend(*x, **call), q, k, v, use_reentrant=False)
    assert isinstance(out, Tensor)
    return out


@right
def weights_rounded_after_normalisation(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    return attend(q, k, v, weights=lambda s: softmax(s).to(q.dtype).to(s.dtype), **call)


@right
def sdpa(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, **call)


@right
def sdpa_math(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    with sdpa_kernel(SDPBackend.MATH):
        return F.scaled_dot_product_attention(q, k, v, **call)


@right
def sdpa_flash(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        return F.scaled_dot_product_attention(q, k, v, **call)

"""A right attention kernel in exchangeable steps. A wrong kernel exchanges one of them.

Computes in fp32 (fp64 for fp64) and rounds once at the end, unless a step says otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor

T = TypeVar("T", bound=Callable[..., Any])


def default_scale(q: Tensor) -> float:
    return 1 / math.sqrt(q.shape[-1])


def wide(x: Tensor) -> Tensor:
    """In the dtype that states and sums are kept in."""
    return x if x.dtype == torch.float64 else x.float()


def group_heads(x: Tensor, q: Tensor) -> Tensor:
    """A key head for every query head: h // group."""
    return x.repeat_interleave(q.shape[1] // x.shape[1], 1)


def causal(scores: Tensor, first_row: int = 0, first_key: int = 0) -> Tensor:
    """True where a query may see a key, aligned top-left."""
    row = torch.arange(scores.shape[-2])[:, None] + first_row
    return torch.arange(scores.shape[-1]) + first_key <= row


def apply_mask(scores: Tensor, attn_mask: Tensor | None, is_causal: bool) -> Tensor:
    if is_causal:
        return scores.masked_fill(~causal(scores), -math.inf)
    if attn_mask is None:
        return scores
    if attn_mask.dtype == torch.bool:
        return scores.masked_fill(~attn_mask, -math.inf)
    return scores + attn_mask


def softmax(scores: Tensor) -> Tensor:
    weights = (scores - scores.amax(-1, keepdim=True)).exp()
    return weights / weights.sum(-1, keepdim=True)


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    heads: Callable[[Tensor, Tensor], Tensor] = group_heads,
    masked: Callable[[Tensor, Tensor | None, bool], Tensor] = apply_mask,
    weights: Callable[[Tensor], Tensor] = softmax,
    weigh: Callable[[Tensor, Tensor], Tensor] = torch.matmul,
) -> Tensor:
    """Right attention; the keyword-only steps are for faults."""
    k, v = heads(k, q), heads(v, q)
    scores = wide(q) @ wide(k).mT * (default_scale(q) if scale is None else scale)
    return weigh(weights(masked(scores, attn_mask, is_causal)), wide(v)).to(q.dtype)


def full_mask(q: Tensor, k: Tensor, attn_mask: Tensor | None, is_causal: bool) -> Tensor | None:
    """Every mask as numbers to add, (B, H, L, S), or None."""
    zeros = torch.zeros(q.shape[0], q.shape[1], q.shape[2], k.shape[2], dtype=wide(q).dtype)
    return None if attn_mask is None and not is_causal else apply_mask(zeros, attn_mask, is_causal)


Step = Callable[..., tuple[Tensor, Tensor, Tensor]]


def update(out: Tensor, total: Tensor, top: Tensor, scores: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """One step of the online softmax: out (B, H, L, d_v), total and top (B, H, L, 1)."""
    new_top = torch.maximum(top, scores.amax(-1, keepdim=True))
    shift = new_top.masked_fill(new_top == -math.inf, 0.0)
    rescale, weights = (top - shift).exp(), (scores - shift).exp()
    return out * rescale + weights @ v, total * rescale + weights.sum(-1, keepdim=True), new_top


def online(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    block: int = 64,
    step: Step = update,
    blocks: Callable[[int, int], list[slice]] | None = None,
    top: float = -math.inf,
) -> Tensor:
    """Right attention over blocks of keys; `step`, `blocks` and the first maximum are for faults."""
    k, v = group_heads(k, q), group_heads(v, q)
    bias = full_mask(q, k, attn_mask, is_causal)
    scaled = wide(q) * (default_scale(q) if scale is None else scale)
    out = torch.zeros(*q.shape[:3], v.shape[-1], dtype=scaled.dtype)
    total = torch.zeros(*q.shape[:3], 1, dtype=scaled.dtype)
    maximum = torch.full_like(total, top)
    for keys in (blocks or even_blocks)(k.shape[2], block):
        scores = scaled @ wide(k[:, :, keys]).mT
        if bias is not None:
            scores = scores + bias[..., keys]
        out, total, maximum = step(out, total, maximum, scores, wide(v[:, :, keys]))
    return (out / total).to(q.dtype)


def even_blocks(kv_len: int, block: int) -> list[slice]:
    return [slice(start, min(start + block, kv_len)) for start in range(0, kv_len, block)]

"""The fp64 reference: attention as the definition says, streaming over keys.

It calls no attention kernel of any library. Its rows are an online softmax (Milakov & Gimelshein, "Online
normalizer calculation for softmax", 2018) in fp64, so its own error is a few units of 1e-16.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from precision.errors import UsageError
from precision.numerics.scores import RowBlock, Scores
from precision.operands import Operands


@dataclass(frozen=True)
class Reference:
    """What attention gives in fp64: out (B, Hq, L, d_v) and lse, the log of each row's sum of exponentials, (B, Hq, L).

    A row in which every key is masked has out 0 and lse -inf.
    """

    out: Tensor
    lse: Tensor


def reference(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Reference:
    """fp64 attention of the tensors as given, in any float dtype, with torch's conventions for every argument.

    Raises UsageError when the shapes or the mask make no sense.
    """
    x = Operands(q, k, v, attn_mask, is_causal, scale)
    _validate(x, enable_gqa)
    return attend(x)


def attend(x: Operands) -> Reference:
    """The reference of one call."""
    scores = Scores(x)
    batch, heads, q_len, _ = x.q.shape
    out = torch.zeros(batch, heads, q_len, x.v.shape[-1], dtype=torch.float64, device=x.q.device)
    lse = torch.full((batch, heads, q_len), -torch.inf, dtype=torch.float64, device=x.q.device)
    for block in scores.blocks():
        _attend_block(scores, block, out[block.index], lse[block.index])
    return Reference(out, lse)


def _attend_block(scores: Scores, block: RowBlock, out: Tensor, lse: Tensor) -> None:
    row_max = lse.clone()  # (rows,), -inf
    row_sum = torch.zeros_like(lse)
    # Held as (d_v, rows): BLAS takes V^T P^T in four fifths of the time of the tall and thin P V.
    weighted = torch.zeros_like(out.T, memory_format=torch.contiguous_format)
    for keys, logits in scores.logits(block):
        new_max = torch.maximum(row_max, logits.amax(-1))
        shift = new_max.where(new_max != -torch.inf, 0.0)  # a row without a key so far: exp(-inf - 0) = 0
        rescale = torch.exp(row_max - shift)
        weights = logits.sub_(shift[:, None]).exp_()
        row_sum.mul_(rescale).add_(weights.sum(-1))
        weighted.mul_(rescale).addmm_(scores.values(block, keys).T, weights.T)
        row_max = new_max
    masked = row_max == -torch.inf
    out.copy_((weighted / row_sum.masked_fill(masked, 1.0)).T)
    lse.copy_(row_max + row_sum.log())


def _validate(x: Operands, enable_gqa: bool) -> None:
    if not x.q.dim() == x.k.dim() == x.v.dim() == 4:
        raise UsageError(
            f"q, k and v must be (batch, heads, length, width), but have {x.q.dim()}, {x.k.dim()} and "
            f"{x.v.dim()} dimensions; unsqueeze the missing ones"
        )
    q, k, v = tuple(x.q.shape), tuple(x.k.shape), tuple(x.v.shape)
    if q[0] != k[0] or k[:3] != v[:3] or q[3] != k[3]:
        raise UsageError(f"the shapes q {q}, k {k} and v {v} do not fit: batch, kv_heads, kv_len and d_k must agree")
    if q[1] != k[1] and not enable_gqa:
        raise UsageError(f"q has {q[1]} heads and k has {k[1]}; pass enable_gqa=True for grouped-query attention")
    if q[1] % k[1]:
        raise UsageError(f"q has {q[1]} heads, which is no multiple of the {k[1]} heads of k")
    if x.attn_mask is not None:
        if x.is_causal:
            raise UsageError("give attn_mask or is_causal, not both; fold the causal mask into attn_mask")
        if x.attn_mask.dtype != torch.bool and not x.attn_mask.is_floating_point():
            raise UsageError(f"attn_mask is {x.attn_mask.dtype}; it must be boolean or floating")
        try:
            x.attn_mask.expand(q[0], q[1], q[2], k[2])
        except RuntimeError:
            wanted = (q[0], q[1], q[2], k[2])
            raise UsageError(f"attn_mask {tuple(x.attn_mask.shape)} does not broadcast to {wanted}") from None

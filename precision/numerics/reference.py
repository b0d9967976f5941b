"""The fp64 reference: attention as the definition says, streaming over keys.

It calls no attention kernel of any library. Its rows are an online softmax (Milakov & Gimelshein, "Online
normalizer calculation for softmax", 2018) in fp64, so its own error is a few units of 1e-16.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from precision.errors import UsageError
from precision.numerics.gradients import Gradients, attend_backward
from precision.numerics.scores import RowBlock, Scores
from precision.operands import Operands

_LOG2_E = 1.0 / math.log(2.0)


@dataclass(frozen=True)
class Reference:
    """What attention gives in fp64: out (B, Hq, L, d_v) and lse, the log of each row's sum of exponentials, (B, Hq, L).

    A key whose logit is -inf, as a masked one's is, takes no part: not even a NaN or an infinity in its v counts.
    A row that sees no key has out 0 and lse -inf. A logit of +inf makes out NaN and lse +inf, as the definition does.
    """

    operands: Operands
    out: Tensor
    row_max: Tensor  # (B, Hq, L), the largest logit
    row_sum: Tensor  # (B, Hq, L), the sum of exp(logit - row_max)

    @cached_property
    def lse(self) -> Tensor:
        """(B, Hq, L), row_max + log(row_sum)."""
        return self.row_max + self.row_sum.log()

    @property
    def masked_rows(self) -> Tensor:
        """(B, Hq, L), True where no key takes part."""
        return self.row_max == -torch.inf

    def backward(self, do: Tensor) -> Gradients:
        """dq, dk and dv in fp64, the gradients of sum(do * out), for do of the shape of out in any float dtype.

        Raises UsageError when do has another shape or is not finite.
        """
        if do.shape != self.out.shape:
            raise UsageError(f"do is {tuple(do.shape)}; it must have the shape of out, {tuple(self.out.shape)}")
        if not do.isfinite().all():
            raise UsageError("do has elements that are not finite; give a finite do")
        return attend_backward(self.operands, self, do)


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


@torch.no_grad()
def attend(x: Operands) -> Reference:
    """The reference of one call."""
    scores = Scores(x)
    v_is_finite = bool(x.v.isfinite().all())
    batch, heads, q_len, _ = x.q.shape
    out = torch.zeros(batch, heads, q_len, x.v.shape[-1], dtype=torch.float64, device=x.q.device)
    row_max = torch.full((batch, heads, q_len), -torch.inf, dtype=torch.float64, device=x.q.device)
    row_sum = torch.zeros_like(row_max)
    for block in scores.blocks():
        _attend_block(scores, block, out[block.index], row_max[block.index], row_sum[block.index], v_is_finite)
    return Reference(x, out, row_max, row_sum)


def _attend_block(
    scores: Scores, block: RowBlock, out: Tensor, row_max: Tensor, row_sum: Tensor, v_is_finite: bool
) -> None:
    # Held as (d_v, rows): BLAS takes V^T P^T in four fifths of the time of the tall and thin P V.
    weighted = torch.zeros_like(out.T, memory_format=torch.contiguous_format)
    for keys, logits in scores.logits(block):
        new_max = torch.maximum(row_max, logits.amax(-1))
        # An infinite maximum is not subtracted, for inf - inf is NaN: exp(-inf) = 0 and exp(inf) = inf are meant.
        shift = new_max.where(new_max.isfinite(), 0.0)
        rescale = torch.exp(row_max - shift)
        absent = None if v_is_finite else logits == -torch.inf
        weights = logits.sub_(shift[:, None]).mul_(_LOG2_E).exp2_()  # exp2 takes half the time of exp
        row_sum.mul_(rescale).add_(weights.sum(-1))
        weighted.mul_(rescale)
        values = scores.values(block, keys)
        if absent is None:
            weighted.addmm_(values.T, weights.T)
        else:
            weighted.add_(_weigh_nonfinite(values, weights, absent))
        row_max.copy_(new_max)
    masked = row_max == -torch.inf
    out.copy_((weighted / row_sum.masked_fill(masked, 1.0)).T)


def _weigh_nonfinite(values: Tensor, weights: Tensor, absent: Tensor) -> Tensor:
    """V^T P^T, (d_v, rows), without the absent keys, (rows, keys): their 0 NaN would be NaN in a plain product."""
    finite = values.isfinite()
    product = torch.mm(values.where(finite, 0.0).T, weights.T)
    for key in (~finite.all(-1)).nonzero().flatten().tolist():
        rest = torch.outer(values[key].masked_fill(finite[key], 0.0), weights[:, key])
        product += rest.masked_fill_(absent[:, key], 0.0)
    return product


def _validate(x: Operands, enable_gqa: bool) -> None:
    if not x.q.dim() == x.k.dim() == x.v.dim() == 4:
        raise UsageError(
            f"q, k and v must be (batch, heads, length, width), but have {x.q.dim()}, {x.k.dim()} and "
            f"{x.v.dim()} dimensions; unsqueeze the missing ones"
        )
    if not (x.q.is_floating_point() and x.k.is_floating_point() and x.v.is_floating_point()):
        raise UsageError(f"q, k and v are {x.q.dtype}, {x.k.dtype} and {x.v.dtype}; convert them to a float dtype")
    q, k, v = tuple(x.q.shape), tuple(x.k.shape), tuple(x.v.shape)
    if 0 in (q[1], k[1], q[3]):
        raise UsageError(f"q {q} and k {k} need at least one head each and a width d_k of 1 or more")
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

"""The online softmax: rescaling, maxima, merges."""

import math
from typing import Any

import torch
from torch import Tensor

from tests.kernels.catalogue import NARROW, wrong
from tests.kernels.parts import attend, default_scale, full_mask, group_heads, online, update, wide

State = tuple[Tensor, Tensor, Tensor]


def _terms(top: Tensor, scores: Tensor) -> State:
    """The new maximum, the factor of the old state, and the weights."""
    new = torch.maximum(top, scores.amax(-1, keepdim=True))
    shift = new.masked_fill(new == -math.inf, 0.0)
    return new, (top - shift).exp(), (scores - shift).exp()


@wrong(says="accumulator is not rescaled")
def accumulator_not_rescaled(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    def step(out: Tensor, total: Tensor, top: Tensor, scores: Tensor, v: Tensor) -> State:
        new, factor, weights = _terms(top, scores)
        return out + weights @ v, total * factor + weights.sum(-1, keepdim=True), new

    return online(q, k, v, block=32, step=step, **call)


@wrong(says="sum is not rescaled")
def sum_not_rescaled(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    def step(out: Tensor, total: Tensor, top: Tensor, scores: Tensor, v: Tensor) -> State:
        new, factor, weights = _terms(top, scores)
        return out * factor + weights @ v, total + weights.sum(-1, keepdim=True), new

    return online(q, k, v, block=32, step=step, **call)


@wrong()
def maximum_of_the_block_only(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    """The running maximum is replaced, not raised: it falls again, and the old state overflows."""

    def step(out: Tensor, total: Tensor, top: Tensor, scores: Tensor, v: Tensor) -> State:
        new = scores.amax(-1, keepdim=True)
        new = new.where(new > -math.inf, top)
        shift = new.masked_fill(new == -math.inf, 0.0)
        factor, weights = (top - shift).exp(), (scores - shift).exp()
        return out * factor + weights @ v, total * factor + weights.sum(-1, keepdim=True), new

    return online(q, k, v, step=step, **call)


@wrong()
def stale_maximum_in_the_rescaling(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    """The state is rescaled by the step before."""
    held: dict[str, Tensor] = {}

    def step(out: Tensor, total: Tensor, top: Tensor, scores: Tensor, v: Tensor) -> State:
        new, factor, weights = _terms(top, scores)
        used, held["factor"] = held.get("factor", factor), factor
        return out * used + weights @ v, total * used + weights.sum(-1, keepdim=True), new

    return online(q, k, v, block=32, step=step, **call)


@wrong(says="NaN or infinite")
def maximum_of_the_first_block(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    def step(out: Tensor, total: Tensor, top: Tensor, scores: Tensor, v: Tensor) -> State:
        first = top.where(top > -math.inf, scores.amax(-1, keepdim=True))
        weights = (scores - first.masked_fill(first == -math.inf, 0.0)).exp()
        return out + weights @ v, total + weights.sum(-1, keepdim=True), first

    return online(q, k, v, block=32, step=step, **call)


@wrong(says="NaN or infinite")
def maximum_starts_at_zero(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    return online(q, k, v, top=0.0, **call)


@wrong(says="NaN or infinite")
def one_maximum_for_all_rows(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    def weights(scores: Tensor) -> Tensor:
        power = (scores - scores.amax((-1, -2), keepdim=True)).exp()
        return power / power.sum(-1, keepdim=True)

    return attend(q, k, v, weights=weights, **call)


@wrong(says="plain mean")
def splits_averaged(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False, **call: Any
) -> Tensor:
    kv_len = k.shape[2]
    half = 64
    if kv_len <= half or is_causal or attn_mask is not None:
        return attend(q, k, v, attn_mask, is_causal, **call)
    parts = [attend(q, k[:, :, i : i + half], v[:, :, i : i + half], **call) for i in range(0, kv_len, half)]
    return torch.stack(parts).mean(0)


@wrong(says="merged by their sums")
def splits_merged_by_sums(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False,
    scale: float | None = None, enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    bias = full_mask(q, k, attn_mask, is_causal)
    k, v = group_heads(k, q), group_heads(v, q)
    scores = wide(q) @ wide(k).mT * (default_scale(q) if scale is None else scale)
    scores = scores if bias is None else scores + bias
    out, total = 0.0, 0.0
    for start in range(0, k.shape[2], 64):
        part = scores[..., start : start + 64]
        top = part.amax(-1, keepdim=True)
        weights = (part - top.masked_fill(top == -math.inf, 0.0)).exp()
        out, total = out + weights @ wide(v[:, :, start : start + 64]), total + weights.sum(-1, keepdim=True)
    return (out / total).to(q.dtype)


@wrong()
def rescaled_once_too_often(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    def step(out: Tensor, total: Tensor, top: Tensor, scores: Tensor, v: Tensor) -> State:
        new, factor, weights = _terms(top, scores)
        new_out, _, _ = update(out, total, top, scores, v)
        return new_out, total * factor * factor + weights.sum(-1, keepdim=True), new

    return online(q, k, v, block=32, step=step, **call)


@wrong("fp32")
def rescaling_skipped_below_a_threshold(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    """Small rises of the maximum are taken for none, although the new weights use the new maximum."""

    def step(out: Tensor, total: Tensor, top: Tensor, scores: Tensor, v: Tensor) -> State:
        new, factor, weights = _terms(top, scores)
        factor = factor.where(factor < 0.99, 1.0)
        return out * factor + weights @ v, total * factor + weights.sum(-1, keepdim=True), new

    return online(q, k, v, block=16, step=step, **call)


@wrong(says="accumulator is not rescaled")
def accumulator_not_rescaled_for_the_remainder(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    def step(out: Tensor, total: Tensor, top: Tensor, scores: Tensor, v: Tensor) -> State:
        new, _, weights = _terms(top, scores)
        new_out, new_total, _ = update(out, total, top, scores, v)
        partial = scores.shape[-1] < 64 and top.isfinite().all()
        return out + weights @ v if partial else new_out, new_total, new

    return online(q, k, v, block=64, step=step, **call)


@wrong(*NARROW)
def splits_merged_by_narrow_lse(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    """The log-sum-exp of each split of the keys is kept in the dtype of the output."""

    def weigh(p: Tensor, v: Tensor) -> Tensor:
        parts = [slice(start, start + 256) for start in range(0, v.shape[2], 256)]
        totals = torch.stack([p[..., part].sum(-1, keepdim=True) for part in parts])
        outs = torch.stack([p[..., part] @ v[:, :, part] for part in parts]) / totals.clamp_min(1e-30)
        lse = (totals.log() + 20).to(q.dtype).float()
        merged = (lse - lse.amax(0)).exp()
        return (outs * merged).sum(0) / merged.sum(0)

    return attend(q, k, v, weigh=weigh, **call)


@wrong()
def splits_of_long_rows_merged_without_a_maximum(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    """From 512 keys on the parts of a row are weighted by exp(lse)."""

    def weights(scores: Tensor) -> Tensor:
        if scores.shape[-1] < 512:
            return scores.softmax(-1)
        return scores.exp() / scores.exp().sum(-1, keepdim=True)

    return attend(q, k, v, weights=weights, **call)

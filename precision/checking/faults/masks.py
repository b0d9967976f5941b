"""Faults of masks: not applied, inverted, added as a number, aligned otherwise, of another batch or head."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import permutations
from operator import le

import torch
from torch import Tensor

from precision.checking.faults.fault import Evidence, Prediction, hypothesis
from precision.numerics.rounding import round_to
from precision.operands import Operands


@hypothesis()
def wrong_alignment(evidence: Evidence) -> Iterator[Prediction]:
    """is_causal as another function: bottom-right, without or beyond the diagonal, or not at all."""
    x = evidence.x
    if not x.is_causal:
        if x.attn_mask is None and x.q.shape[2] > 1:
            yield "looks causal although it was not asked to", evidence.under(replace(x, is_causal=True))
        return
    q_len, kv_len = x.q.shape[2], x.k.shape[2]
    row, key = torch.arange(q_len, device=x.q.device)[:, None], torch.arange(kv_len, device=x.q.device)
    masks = {
        "is_causal is ignored": torch.ones(q_len, kv_len, dtype=torch.bool, device=x.q.device),
        "looks bottom-right aligned": key <= row + kv_len - q_len,
        "the causal mask lets query i see key i + 1": key <= row + 1,
        "the causal mask is the wrong way round": key >= row,
    }
    for name in ("bf16", "fp16"):
        rounded = (round_to(position.double(), name).double() for position in (key, row))
        masks[f"the positions of the causal mask look rounded to {name}"] = le(*rounded)
    for first in (0, 1):  # the first query sees nothing then, or one key all the same
        yield (
            "the causal mask leaves out the diagonal",
            evidence.under(replace(x, is_causal=False, attn_mask=key < row.clamp(min=first))),
        )
    for sentence, mask in masks.items():
        yield sentence, evidence.under(replace(x, is_causal=False, attn_mask=mask))


@hypothesis()
def wrong_mask(evidence: Evidence) -> Iterator[Prediction]:
    """attn_mask as something else."""
    x = evidence.x
    if x.attn_mask is None:
        return
    mask = x.attn_mask
    for sentence, other in (*_as_numbers(x, mask), *_of_other_axes(mask)):
        if _fits(other, x):
            yield sentence, evidence.under(replace(x, attn_mask=other))
    yield "the mask is ignored", evidence.under(replace(x, attn_mask=None))
    if mask.dim() == 4 and mask.shape[0] > 1:
        yield "the mask of the first sequence is used for all", evidence.under(replace(x, attn_mask=mask[:1]))
    if mask.dim() == 4 and mask.shape[1] > 1:
        yield "the mask of the first head is used for all", evidence.under(replace(x, attn_mask=mask[:, :1]))


def _fits(mask: Tensor, x: Operands) -> bool:
    """Whether it broadcasts to (B, H, L, S)."""
    sizes = zip(mask.shape[::-1], (x.k.shape[2], *x.q.shape[2::-1]), strict=False)
    return all(size in (1, whole) for size, whole in sizes)


def _as_numbers(x: Operands, mask: Tensor) -> Iterator[tuple[str, Tensor]]:
    if mask.dtype == torch.bool:
        group = x.q.shape[1] // x.k.shape[1]
        scores = x.q.double() @ x.k.double().repeat_interleave(group, 1).mT * x.scale_value
        for value in (-1e4, -1000.0, -100.0, -10.0):
            yield f"masked scores get {value:g} added, not -inf", torch.where(mask, 0.0, value).double()
            yield f"masked scores are set to {value:g}, not -inf", torch.where(mask, 0.0, value - scores)
        yield "the boolean mask is inverted", ~mask
        yield "the boolean mask is added as 0 and 1", mask.double()
    else:
        yield "the additive mask is subtracted", -mask.double().clamp_min(-1e300)
        yield "only the -inf of the additive mask counts", mask.where(mask == -torch.inf, 0.0)


def _of_other_axes(mask: Tensor) -> Iterator[tuple[str, Tensor]]:
    """The mask with some of its axes taken for others; where that does not broadcast, it is no candidate."""
    axes = ("batch", "head", "query")
    mask = mask.reshape(*(1,) * (4 - mask.dim()), *mask.shape)
    for order in permutations(range(3)):
        moved = [f"{axes[old]} for {axes[new]}" for new, old in enumerate(order) if old != new and mask.shape[old] > 1]
        if moved:
            yield f"the axes of the mask are confused: {', '.join(moved)}", mask.permute(*order, 3)
    if mask.shape[2] > 1:
        yield "the mask is transposed", mask.mT


@hypothesis(everywhere=True)
def mask_times_factor(evidence: Evidence) -> Iterator[Prediction]:
    """(q.k + mask) scale instead of q.k scale + mask, or exp2 of it without log2(e)."""
    x = evidence.x
    if x.attn_mask is not None and x.attn_mask.dtype != torch.bool:
        scaled = x.attn_mask.double() * x.scale_value
        yield "the mask is added before the scale", evidence.under(replace(x, attn_mask=scaled))
        natural = x.attn_mask.double() * math.log(2)
        yield "the mask lacks the log2(e) that exp2 needs", evidence.under(replace(x, attn_mask=natural))

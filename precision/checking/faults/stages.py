"""Faults of precision: a stage rounded to a narrower format than the inputs', truncation, narrow accumulators."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from torch import Tensor

from precision.checking.faults.fault import Evidence, Prediction, hypothesis
from precision.checking.faults.formats import narrower_formats, spoken
from precision.formats import find_format
from precision.numerics.metrics import ulp
from precision.numerics.rounding import round_to
from precision.operands import Operands

_LONG = 4096  # keys from which on a narrow accumulator shows
_BLOCKS = (16, 32, 64, 128, 256)


def _weights(x: Operands, round_scores: Callable[[Tensor], Tensor] = lambda s: s) -> tuple[Tensor, Tensor]:
    """exp(logit - max) and v for every query head, in fp64."""
    group = x.q.shape[1] // x.k.shape[1]
    q, k, v = x.q.double(), x.k.double().repeat_interleave(group, 1), x.v.double().repeat_interleave(group, 1)
    logits = round_scores(q @ k.mT) * x.scale_value
    if x.is_causal:
        logits = logits.masked_fill(torch.ones_like(logits, dtype=torch.bool).triu(1), -torch.inf)
    if x.attn_mask is not None and x.attn_mask.dtype == torch.bool:
        logits = logits.masked_fill(~x.attn_mask, -torch.inf)
    elif x.attn_mask is not None:
        logits = logits + x.attn_mask.double()
    return (logits - logits.amax(-1, keepdim=True)).exp(), v


@hypothesis(everywhere=True, rounding=True)
def narrow_stage(evidence: Evidence) -> Iterator[Prediction]:
    """Inputs, scores, weights or output rounded to a narrower format."""
    x = evidence.x
    for format in narrower_formats(evidence.truth.format):

        def narrow(t: Tensor, format: str = format) -> Tensor:
            return round_to(t.double(), format).double()

        name = spoken(format, evidence.truth.format)
        yield (
            f"q, k and v look rounded to {name}",
            evidence.under(replace(x, q=narrow(x.q), k=narrow(x.k), v=narrow(x.v))),
        )
        yield f"q and k look rounded to {name}", evidence.under(replace(x, q=narrow(x.q), k=narrow(x.k)))
        yield f"v looks rounded to {name}", evidence.under(replace(x, v=narrow(x.v)))
        if x.attn_mask is not None and x.attn_mask.dtype != torch.bool:
            yield f"the mask looks rounded to {name}", evidence.under(replace(x, attn_mask=narrow(x.attn_mask)))
        if evidence.tensor != "out":
            continue
        scores, v = _weights(x, narrow)
        yield f"S looks rounded to {name}", scores @ v / scores.sum(-1, keepdim=True)
        p, v = _weights(x)
        yield f"P looks rounded to {name}", narrow(p) @ v / p.sum(-1, keepdim=True)
        yield f"P looks rounded to {name} after normalisation", narrow(p / p.sum(-1, keepdim=True)) @ v
        yield f"the sum of P looks rounded to {name}", p @ v / narrow(p.sum(-1, keepdim=True))


@hypothesis(everywhere=True, rounding=True)
def truncated(evidence: Evidence) -> Iterator[Prediction]:
    """Toward 0 instead of to nearest."""
    format = evidence.truth.format
    spacing = ulp(evidence.right, format)
    yield f"{evidence.tensor} looks truncated, not rounded", (evidence.right / spacing).trunc() * spacing
    if evidence.tensor == "out":
        p, v = _weights(evidence.x)
        spacing = ulp(p, format)
        cut = (p / spacing).trunc() * spacing
        yield "P looks truncated, not rounded", cut @ v / p.sum(-1, keepdim=True)


@hypothesis(everywhere=True)
def flushed(evidence: Evidence) -> Iterator[Prediction]:
    """Numbers below the smallest normal one are taken for 0."""
    x, least = evidence.x, 2.0**evidence.truth.format.min_exponent
    right, below = evidence.right, f"below {least:.2g}, the smallest normal number"
    yield f"{evidence.tensor} is 0 {below}", right.where(right.abs() >= least, 0.0)
    if evidence.tensor == "out":
        v = x.v.where(x.v.abs() >= least, 0.0)
        yield f"v is taken for 0 {below}", evidence.under(replace(x, v=v))


@hypothesis(everywhere=True, rounding=True)
def narrow_accumulator(evidence: Evidence) -> Iterator[Prediction]:
    """The output or the row's sum kept in a 16-bit format from block to block."""
    if evidence.tensor != "out" or evidence.x.k.shape[2] < _LONG:
        return
    p, v = _weights(evidence.x)
    narrow = [
        name for name in ("fp16", "bf16") if find_format(name).unit_roundoff >= evidence.truth.format.unit_roundoff
    ]
    for name in narrow:
        for block in _BLOCKS:
            out = round_to(torch.zeros_like(evidence.right), name)
            total = round_to(torch.zeros_like(p[..., :1]), name)
            for start in range(0, p.shape[-1], block):
                keys = slice(start, start + block)
                out = round_to(out.double() + p[..., keys] @ v[..., keys, :], name)
                total = round_to(total.double() + p[..., keys].sum(-1, keepdim=True), name)
            exact = p.sum(-1, keepdim=True)
            yield f"the accumulator of out looks kept in {name} over blocks of {block} keys", out.double() / exact
            yield f"the sum of P looks kept in {name} over blocks of {block} keys", p @ v / total.double()

"""Lau: with an attention sink, weights in fp8 underflow to zero."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from scipy import integrate, stats

from precision.experiments.draws import generator
from precision.experiments.effort import Effort
from precision.experiments.evidence import Share, Value
from precision.experiments.plot import Plot
from precision.formats import find_stage_format
from precision.published.published import Published, Target, published
from precision.stages.rounding import Rounding

_ZERO = "share of the weights that are 0 in e4m3"
_SINKS = 4
_KEYS = 64  # that are no sinks, a row
_FACTORS = (1, 256)  # what P is multiplied by before the cast
_GAPS = (2, 4, 6, 8, 10, 12)
_RIGHT = {(4, 1): 0.062, (6, 1): 0.532, (10, 256): 0.1175}


@published.register("p-collapse")
@dataclass(frozen=True)
class PCollapse(Published):
    """A share Phi(Delta + delta_k - 6.93 - ln S) of the weights beside an attention sink is zero in fp8 e4m3."""

    source = (
        "Lau, P-Cast Precision in FP8 Attention: Sink-Induced Collapse and the Optimality of S = 2^8, 2026, arXiv "
        "2606.06521"
    )
    setup = (
        "Scores ~ N(0, 1), and four sink keys with scores Delta + N(0, 1) that come first and so set the maximum. P = "
        "exp(s - m) times S is rounded to e4m3, which is 0 up to 2^-10: 6.93 = 10 ln 2. delta_k, the largest of the "
        "four, is about 1."
    )
    choices = (
        "The formula has delta_k as a number; the law here is its mean over delta_k, the largest of four N(0, 1), "
        "which is what a measurement gives. Only the cast is rounded; 64 keys a row beside the sinks."
    )
    plot = Plot("Zeros among the weights that belong to no sink, by the sink's height.", x="Delta", base2=False)

    def measure(self, effort: Effort) -> Iterable[Value]:
        for factor in _FACTORS:
            for gap in _GAPS:
                yield Value(_ZERO, f"law, S = {factor}", gap, 0, _law(gap, factor))
                for seed in effort.seeds:
                    share = _share_zero(gap, factor, effort.size(16384, 4096), seed)
                    yield Share(_ZERO, f"measured, S = {factor}", gap, seed, share)

    def targets(self, effort: Effort) -> Iterable[Target]:
        for (gap, factor), right in _RIGHT.items():
            yield Target(_ZERO, f"measured, S = {factor}", right, 0.01, 0.02, x=gap)
            yield Target(_ZERO, f"measured, S = {factor}", _law(gap, factor), 0.008, 0.016, x=gap, origin="theory")


def _law(gap: float, factor: float) -> float:
    """E of Phi(gap + X + ln(2^-10) - ln factor) over X, the largest of four N(0, 1)."""
    limit = find_stage_format("e4m3").exp_underflow - math.log(factor)

    def at(largest: float) -> float:
        density = _SINKS * stats.norm.pdf(largest) * stats.norm.cdf(largest) ** (_SINKS - 1)
        return float(stats.norm.cdf(gap + largest + limit) * density)

    return float(integrate.quad(at, -8, 8)[0])


def _share_zero(gap: float, factor: float, rows: int, seed: int) -> float:
    stream = generator(seed)
    scores = torch.randn(rows, _KEYS, generator=stream, dtype=torch.float64)
    sinks = gap + torch.randn(rows, _SINKS, generator=stream, dtype=torch.float64)
    p = (scores - sinks.amax(-1, keepdim=True)).exp()
    return float((Rounding.parse(f"e4m3:x{factor}").apply(p) == 0).double().mean())

"""Qiu & Yao: when two weights of a row are 1, rounding the unnormalised output has a bias."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import nan

import torch
from torch import Generator, Tensor

from precision.experiments.draws import generator
from precision.experiments.effort import Effort
from precision.experiments.evidence import Value
from precision.experiments.plot import Plot
from precision.formats import find_format
from precision.numerics.metrics import ulp
from precision.numerics.rounding import round_values
from precision.published.published import Published, Target, published

_BF16 = find_format("bf16")
_SMALL = 62  # keys whose weights are small
_BIAS, _CONTROL = "mean error, in ulp of the sum", "mean error of the controls, in ulp"
_MEASURED, _LAW = "measured", "law |r| - 1/4"
_RESIDUALS = (4e-4, 0.023, 0.06, 0.11, 0.17)
_RIGHT = {4e-4: -0.250, 0.023: -0.227, 0.17: -0.080}
_CHUNK = 2**14  # rows at a time

_NONE, _ZERO_MEAN, _FUSED, _BELOW_ONE = (
    "no small weights", "V of mean zero", "fused kernel: divided in fp32, rounded once", "largest weights below 1",
)  # fmt: skip


@published.register("biased-rounding")
@dataclass(frozen=True)
class BiasedRounding(Published):
    """Two weights of exactly 1 and values of one sign make the bf16 rounding of P V biased: by |r| - 1/4 ulp."""

    source = (
        "Qiu & Yao, Why Low-Precision Transformer Training Fails: An Analysis on Flash Attention, 2025, arXiv "
        "2510.04212"
    )
    setup = (
        "A row with two tied maxima (P = 1 twice), 62 small weights, and bf16 values V in (-2, -1]; the sum P V is "
        "rounded to bf16 before it is divided. r is the part of the small weights in the sum, in ulp of the sum. The "
        "sum of two such values is a number of the format or half-way between two; r always decides the tie the same "
        "way."
    )
    choices = (
        "V is uniform on the bf16 numbers of its binade, and the small weights of a row are alike and chosen for r. "
        "Four controls have no bias: no small weights, so that ties go to even; V of either sign; a kernel that "
        "divides in fp32 and rounds once; and, the paper's own remedy, a larger maximum, so that no weight is 1."
    )
    plot = Plot(
        "The mean error of the rounded sum follows the law; without bias it would be 0.",
        x="r, in ulp of the sum",
        base2=False,
    )

    def measure(self, effort: Effort) -> Iterable[Value]:
        rows = effort.size(2**16, 2**15)
        for r in _RESIDUALS:
            yield Value(_BIAS, _LAW, r, 0, abs(r) - 0.25)
            for seed in effort.seeds:
                yield Value(_BIAS, _MEASURED, r, seed, _mean(rows, seed, r))
        for seed in effort.seeds:
            yield Value(_CONTROL, _NONE, nan, seed, _mean(rows, seed, 0.0))
            yield Value(_CONTROL, _ZERO_MEAN, nan, seed, _mean(rows, seed, 0.023, either_sign=True))
            yield Value(_CONTROL, _FUSED, nan, seed, _mean(rows, seed, 0.023, fused=True))
            yield Value(_CONTROL, _BELOW_ONE, nan, seed, _mean(rows, seed, 0.023, below_one=True))

    def targets(self, effort: Effort) -> Iterable[Target]:
        for r, right in _RIGHT.items():
            yield Target(_BIAS, _MEASURED, right, 0.003, 0.005, x=r)
        for control in (_NONE, _ZERO_MEAN, _FUSED):
            yield Target(_CONTROL, control, 0.0, 0.003, 0.005)
        yield Target(_CONTROL, _BELOW_ONE, 0.0, 0.01, 0.012)  # the products still end in few bits: some sums are ties


def _mean(rows: int, seed: int, r: float, **changes: bool) -> float:
    stream = generator(seed)
    parts = [_errors(min(_CHUNK, rows - start), stream, r, **changes) for start in range(0, rows, _CHUNK)]
    return float(torch.cat(parts).mean())


def _errors(
    rows: int, stream: Generator, r: float, *, either_sign: bool = False, fused: bool = False, below_one: bool = False
) -> Tensor:
    """Signed errors in ulp of each row's rounded P V, or of its output where the kernel is fused, (rows,)."""
    # The 128 bf16 numbers of a binade, 1 to 2.
    v = -(1 + torch.randint(128, (rows, _SMALL + 2), generator=stream) / 128).double()
    if either_sign:
        v *= torch.randint(2, (rows, 1), generator=stream) * 2 - 1
    one_ulp = 2.0**-6  # of a sum of two, in [2, 4)
    small = round_values(torch.tensor(r * one_ulp / (_SMALL * 1.5), dtype=torch.float64), _BF16)
    p = torch.cat([torch.ones(rows, 2), small.expand(rows, _SMALL)], 1)
    if below_one:  # exp(-m), another m in each row
        p = round_values(p * (-0.5 - torch.rand(rows, 1, generator=stream)).double().exp(), _BF16)
    total = (p * v).sum(-1)  # fp64 holds it exactly enough: 2^-53 of it
    if fused:
        total = total / p.sum(-1)
    return (round_values(total, _BF16) - total) / ulp(total, _BF16)

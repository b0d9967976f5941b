"""FlashAttention-4: 2^x in software, a polynomial of degree 3 on the fraction."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from precision.experiments.effort import Effort
from precision.experiments.evidence import Value
from precision.experiments.plot import Plot
from precision.formats import find_format
from precision.numerics.rounding import round_values
from precision.published.published import Published, Target, published
from precision.stages.exponential import two_to_the

_ERROR = "largest relative error of 2^x on [0, 1)"
_FP64, _BF16 = "before rounding", "after rounding to bf16"
_EXACT = "exact 2^x, rounded to bf16"
_DEGREES = (1, 2, 3, 4, 5)


@published.register("fa4-exp2")
@dataclass(frozen=True)
class FlashAttention4Exp2(Published):
    """A polynomial of degree 3 for 2^x is as good as the exact one once the weights are rounded to bf16."""

    source = (
        "Zadouri et al., FlashAttention-4: Algorithm and Kernel Pipelining Co-Design for Asymmetric Hardware Scaling, "
        "2026, arXiv 2603.05451"
    )
    setup = "2^x = 2^floor(x) p(x - floor(x)) with p of degree 3 and p(0) = 1; the error is relative to 2^x."
    choices = (
        "The coefficients: here those with the smallest largest relative error on [0, 1] for c0 = 1, by a linear "
        "programme. The polynomial is evaluated in fp64, so that its own error is seen and not that of fp32."
    )
    plot = Plot(
        "From degree 3 on the rounding to bf16 hides the error of the polynomial.",
        x="degree",
        base2=False,
        log=frozenset({_ERROR}),
    )

    def measure(self, effort: Effort) -> Iterable[Value]:
        x = torch.linspace(0, 1, effort.size(2**20, 2**17) + 1, dtype=torch.float64)[:-1]
        exact = torch.exp2(x)
        for degree in _DEGREES:
            value = two_to_the(x, "poly", degree)
            yield Value(_ERROR, _FP64, degree, 0, _largest_error(value, exact))
            yield Value(_ERROR, _BF16, degree, 0, _largest_error(_to_bf16(value), exact))
            yield Value(_ERROR, _EXACT, degree, 0, _largest_error(_to_bf16(exact), exact))

    def targets(self, effort: Effort) -> Iterable[Target]:
        yield Target(_ERROR, _FP64, 8.6e-5, 0.02, 0.02, relative=True, x=3)
        yield Target(_ERROR, _BF16, 3.90e-3, 0.005, 0.005, relative=True, x=3)
        yield Target(_ERROR, _EXACT, 3.89e-3, 0.005, 0.005, relative=True, x=3)


def _to_bf16(x: Tensor) -> Tensor:
    return round_values(x, find_format("bf16"))


def _largest_error(found: Tensor, right: Tensor) -> float:
    return float((found / right - 1).abs().max())

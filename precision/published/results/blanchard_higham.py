"""Blanchard, Higham & Higham: softmax and log-sum-exp with every operation in fp16, against their error bounds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import nan
from typing import NamedTuple

import torch
from scipy import stats
from torch import Tensor

from precision.experiments.effort import Effort
from precision.experiments.evidence import Share, Value
from precision.experiments.plot import Plot
from precision.formats import find_format
from precision.numerics import bounds
from precision.numerics.rounding import round_values
from precision.published.published import Published, Target, published
from precision.published.vectors import COUNT, LENGTH, STD, draw_vectors, read_vectors

_FP16 = find_format("fp16")
_OVERFLOW = "vectors with an infinite exponential or sum"
_VIOLATIONS, _RATIO = "violations of the bound", "largest error / bound"
_UNSHIFTED, _SHIFTED = "unshifted", "shifted"
_BOUNDS = (
    f"softmax, {_UNSHIFTED}", f"softmax, {_SHIFTED}", f"softmax, {_SHIFTED}, element by element",
    f"log-sum-exp, {_UNSHIFTED}", f"log-sum-exp, {_SHIFTED}",
)  # fmt: skip


@published.register("blanchard-higham")
@dataclass(frozen=True)
class BlanchardHigham(Published):
    """Softmax and log-sum-exp with every operation in fp16 keep their error bounds; unshifted they overflow, often."""

    source = (
        "Blanchard, Higham & Higham, Accurately computing the log-sum-exp and softmax functions, IMA J. Numer. Anal. "
        "2021"
    )
    setup = (
        "Vectors of n = 10 logits, rounded to fp16; every exponential, addition, division and logarithm is rounded to "
        "fp16, sums are recursive, and the error is against fp64 on the rounded logits. Bounds: theorems 3.2, 3.3, 4.2 "
        "and 4.3, and the one of 4.3 element by element."
    )
    choices = (
        "Their 2500 vectors, of which 475 overflow, are not shipped; `--vectors FILE` takes them. Drawn ones are "
        f"N(0, {STD}²), which overflow as often by the law 1 - Phi(ln 65520 / {STD})^10. The theorems leave underflow "
        "out, so the bound element by element is held where the right value is a normal number."
    )
    plot = Plot(
        "Errors over their bounds: at most 1 is within. A dot is the mean over the seeds of the largest ratio.",
        shown=(_RATIO, _OVERFLOW),
    )

    def measure(self, effort: Effort) -> Iterable[Value]:
        for seed, vectors in enumerate(_vectors(effort)):
            x = round_values(vectors, _FP16)
            for name, found in _experiment(x).items():
                yield Value(_VIOLATIONS, name, nan, seed, float((found > 1).sum()))
                yield Value(_RATIO, name, nan, seed, float(found.max()))
            for name, shift in ((_UNSHIFTED, False), (_SHIFTED, True)):
                yield Share(_OVERFLOW, name, nan, seed, float(_in_fp16(x, shift).overflowed.double().mean()))

    def targets(self, effort: Effort) -> Iterable[Target]:
        for name in _BOUNDS:
            yield Target(_VIOLATIONS, name, 0.0, 0.0, 0.0)
        yield Target(_OVERFLOW, _SHIFTED, 0.0, 0.0, 0.0)
        if not effort.vectors:
            law = 1 - float(stats.norm.cdf(_FP16.exp_overflow / STD)) ** LENGTH
            # Four standard errors of a share of 2500 vectors a seed; a sum overflows in a few vectors more.
            yield Target(_OVERFLOW, _UNSHIFTED, law, 0.016, 0.02, origin="theory")
        elif read_vectors(effort.vectors).shape == (COUNT, LENGTH):
            yield Target(_OVERFLOW, _UNSHIFTED, 475 / COUNT, 0.0, 0.0)


class _Computed(NamedTuple):
    """The log-sum-exp y (vectors,) and the softmax g (vectors, n) as computed in fp16; which vectors overflowed."""

    y: Tensor
    g: Tensor
    overflowed: Tensor


def _vectors(effort: Effort) -> Iterable[Tensor]:
    return [read_vectors(effort.vectors)] if effort.vectors else map(draw_vectors, effort.seeds)


def _in_fp16(x: Tensor, shift: bool) -> _Computed:
    """Their algorithms 3.1 (unshifted) and 4.1 (shifted; the largest term, 1, is added last)."""
    largest = x.argmax(-1, keepdim=True)
    top = x.gather(-1, largest)
    w = _round((_round(x - top) if shift else x).exp())
    terms = w.scatter(-1, largest, 0.0) if shift else w
    total = torch.zeros_like(top)
    for index in range(x.shape[-1]):
        total = _round(total + terms[:, index, None])
    if shift:
        y, total = _round(top + _round(total.log1p())), _round(1 + total)
    else:
        y = _round(total.log())
    return _Computed(y[:, 0], _round(w / total), total[:, 0].isinf())


def _round(x: Tensor) -> Tensor:
    return round_values(x, _FP16)


def _experiment(x: Tensor) -> dict[str, Tensor]:
    """Error over bound, one number a vector or element, where nothing overflowed, by the name of the bound."""
    y, g = x.logsumexp(-1), x.softmax(-1)
    u, n = _FP16.unit_roundoff, x.shape[-1]
    top, low = x.amax(-1), x.amin(-1)
    spread = top - low
    plain, shifted = _in_fp16(x, False), _in_fp16(x, True)
    fine = ~plain.overflowed
    normal = g >= 2.0**_FP16.min_exponent
    relative = (shifted.g - g).abs() / g
    element = bounds.softmax_shifted_elementwise(n, (top[:, None] - x), spread[:, None])
    found = (
        (_norm_error(plain.g, g) / bounds.softmax_unshifted(n))[fine],
        _norm_error(shifted.g, g) / bounds.softmax_shifted(n, spread),
        (relative / element)[normal],
        ((plain.y - y).abs() / y.abs() / bounds.log_sum_exp_unshifted(n, y))[fine],
        (shifted.y - y).abs() / y.abs() / bounds.log_sum_exp_shifted(n, y, low),
    )
    return dict(zip(_BOUNDS, (ratio / u for ratio in found), strict=True))


def _norm_error(found: Tensor, right: Tensor) -> Tensor:
    """Error over right value, both in the norm of the largest element, of each vector."""
    return (found - right).abs().amax(-1) / right.amax(-1)

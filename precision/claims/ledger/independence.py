"""What the unit-variance law assumes of q and k."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from precision.claims.claim import Claim, Judgement, claims, decide
from precision.experiments.draws import draw_products
from precision.experiments.effort import Effort
from precision.experiments.evidence import Evidence, Value
from precision.experiments.plot import Plot

_D_K = 64
_MEAN, _VARIANCE = "mean of q.k / d_k", "variance of q.k / d_k"
_RHOS, _MEANS = (0.0, 0.3, 0.6, 0.9), (0.0, 0.5, 1.0, 2.0)
_CORRELATION, _OFFSET, _LAW = "correlation ρ", "mean m", ", law"
_SQRT3 = math.sqrt(3)  # a uniform variable of this amplitude has variance 1


@claims.register("independence")
@dataclass(frozen=True)
class Independence(Claim):
    """Variance d_k needs q and k to be independent with mean zero; correlation or an offset breaks it."""

    topic = "the law"
    source = "paper"
    said = "another mean and another variance"
    expected = "confirmed"
    plot = Plot(
        f"d_k = {_D_K}. Correlated pairs have mean ρ d_k and variance (1 + ρ²) d_k; components of mean m have mean "
        "m² d_k and variance (1 + 2 m²) d_k.",
        x="ρ or m",
        base2=False,
    )

    def measure(self, effort: Effort) -> Iterable[Value]:
        pairs = effort.size(2**15, 2**14)
        for seed in effort.seeds:
            for rho in _RHOS:
                s = draw_products(_D_K, pairs, seed, inputs=f"aligned[rho={rho}]")
                yield Value(_MEAN, _CORRELATION, rho, seed, float(s.mean()) / _D_K)
                yield Value(_VARIANCE, _CORRELATION, rho, seed, float(s.var()) / _D_K)
            for m in _MEANS:
                s = draw_products(_D_K, pairs, seed, inputs=f"offset[mean={m},amplitude={_SQRT3}]")
                yield Value(_MEAN, _OFFSET, m, seed, float(s.mean()) / _D_K)
                yield Value(_VARIANCE, _OFFSET, m, seed, float(s.var()) / _D_K)
        for rho in _RHOS:
            yield Value(_MEAN, _CORRELATION + _LAW, rho, 0, rho)
            yield Value(_VARIANCE, _CORRELATION + _LAW, rho, 0, 1 + rho**2)
        for m in _MEANS:
            yield Value(_MEAN, _OFFSET + _LAW, m, 0, m**2)
            yield Value(_VARIANCE, _OFFSET + _LAW, m, 0, 1 + 2 * m**2)

    def judge(self, seen: Evidence) -> Judgement:
        follows = all(
            abs(value - seen.mean(quantity, kind + _LAW, x)) < 0.03 * max(1.0, abs(value))
            for quantity in (_MEAN, _VARIANCE)
            for kind in (_CORRELATION, _OFFSET)
            for x, value in seen.line(quantity, kind).items()
        )
        rho, m = (seen.mean(_VARIANCE, kind, x) for kind, x in ((_CORRELATION, 0.9), (_OFFSET, 2.0)))
        mean = seen.mean(_MEAN, _CORRELATION, 0.9)
        grounds = (
            f"At ρ = .9 the mean is {mean:.3f} d_k and the variance {rho:.3f} d_k; at m = 2 the variance is {m:.2f} "
            f"d_k, as the laws say: {'every point follows them' if follows else 'but not every point follows them'}."
        )
        return decide(follows and rho > 1.5 and m > 2, grounds)

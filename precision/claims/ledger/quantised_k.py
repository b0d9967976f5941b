"""What rounding the keys to a few bits does to their variance."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import nan

from precision.claims.claim import Claim, Judgement, claims, decide_by_part
from precision.experiments.draws import draw_rows
from precision.experiments.effort import Effort
from precision.experiments.evidence import Evidence, Value
from precision.experiments.plot import Plot

_RATIO = "variance of K after / before"
_D_K, _KEYS = 128, 1024
_SHIFTED = 0.01  # a variance that moves by less moves the standard deviation of the scores by less than half of it


@claims.register("quantised-k")
@dataclass(frozen=True)
class QuantisedVariance(Claim):
    """A key cache in int8 or int4 shifts the variance of K, and with it that of the scores."""

    topic = "other mechanisms"
    source = "textbook wisdom"
    said = "a variance ratio that is not 1"
    expected = "conditional"
    plot = Plot(f"Symmetric rounding with a step per token or per tensor, {_KEYS} keys of d_k = {_D_K}, 8 heads.",
                marks={_RATIO: 1.0})  # fmt: skip

    def measure(self, effort: Effort) -> Iterable[Value]:
        for seed in effort.seeds:
            plain, _ = draw_rows(_D_K, 64, seed, keys=_KEYS, heads=8)
            for bits in (8, 4):
                for per in ("token", "tensor"):
                    inputs = f"quantised_k[bits={bits},per={per}]"
                    drawn, _ = draw_rows(_D_K, 64, seed, keys=_KEYS, heads=8, inputs=inputs)
                    yield Value(_RATIO, f"int{bits} per {per}", nan, seed, float(drawn.k.var() / plain.k.var()))

    def judge(self, seen: Evidence) -> Judgement:
        ratio = seen.settings(_RATIO)
        parts = {
            f"at int{bits}": all(abs(ratio[f"int{bits} per {per}"] - 1) > _SHIFTED for per in ("token", "tensor"))
            for bits in (4, 8)
        }
        grounds = (
            f"The ratio is {ratio['int8 per token']:.4f} per token and {ratio['int8 per tensor']:.4f} per tensor at "
            f"int8, {ratio['int4 per token']:.3f} and {ratio['int4 per tensor']:.3f} at int4."
        )
        return decide_by_part(parts, grounds)

"""How peaked the softmax of unscaled scores is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from precision.claims import saturation as sweep
from precision.claims.claim import Claim, Judgement, claims, decide
from precision.claims.saturation import LARGEST, MEDIAN_LARGEST, SCALED, SHARPS, UNSCALED
from precision.experiments.effort import Effort
from precision.experiments.evidence import Evidence, Value
from precision.experiments.plot import Plot


@claims.register("saturation-99")
@dataclass(frozen=True)
class SaturationFigures(Claim):
    """At d_k = 128 and 64 keys the largest weight is about .99 without the scale and .05 with it."""

    topic = "saturation"
    source = "textbook wisdom"
    said = ".99 and .05"
    expected = "refuted"
    plot = Plot("The largest weight of a row, by divisor of q.k. Both sentences are about d_k = 128.")

    def measure(self, effort: Effort) -> Iterable[Value]:
        return sweep.pick(effort, [LARGEST, MEDIAN_LARGEST, SHARPS], [UNSCALED, SCALED])

    def judge(self, seen: Evidence) -> Judgement:
        raw, scaled = (seen.mean(LARGEST, divisor, 128) for divisor in (UNSCALED, SCALED))
        median, share = seen.mean(MEDIAN_LARGEST, UNSCALED, 128), seen.mean(SHARPS, UNSCALED, 128)
        direction = "holds: the scale makes the softmax far softer" if raw > 2 * scaled else "fails as well"
        grounds = (
            f"Unscaled the largest weight is {raw:.3f} in the mean and {median:.3f} in the median, and {share:.0%} of "
            f"the rows reach .99; scaled it is {scaled:.3f}. The direction {direction}."
        )
        return decide(abs(raw - 0.99) < 0.01 and abs(scaled - 0.05) < 0.01, grounds)


@claims.register("one-hot")
@dataclass(frozen=True)
class OneHot(Claim):
    """Without the scale the softmax tends to one-hot as d_k grows."""

    topic = "saturation"
    source = "paper"
    said = "a share of one-hot rows that rises with d_k"
    expected = "confirmed"
    plot = Plot("Share of rows whose largest weight is .99 or more.")

    def measure(self, effort: Effort) -> Iterable[Value]:
        return sweep.pick(effort, [SHARPS], [UNSCALED, SCALED])

    def judge(self, seen: Evidence) -> Judgement:
        raw, scaled = ([*seen.line(SHARPS, divisor).values()] for divisor in (UNSCALED, SCALED))
        rising = all(a < b for a, b in pairwise(raw)) and raw[-1] > 0.5
        grounds = (
            f"The share of rows with a weight of .99 or more is {_listed(seen.line(SHARPS, UNSCALED))}: it rises, and "
            f"slowly. With the scale {'no row has one' if max(scaled) == 0 else f'it is at most {max(scaled):.2g}'}."
        )
        return decide(rising and max(scaled) < 0.01, grounds)


def _listed(line: dict[float, float]) -> str:
    return ", ".join(f"{value:.2g} at {d_k:.0f}" for d_k, value in line.items())

"""The variance of a product of unit-variance q and k, and the size of the scores that follows from it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from precision.claims.claim import Claim, Judgement, claims, decide
from precision.claims.products import RATIO, SIZE, STD, TOLERANCE, measure_products
from precision.experiments.effort import Effort
from precision.experiments.evidence import Evidence, Value
from precision.experiments.plot import Plot


@claims.register("variance")
@dataclass(frozen=True)
class Variance(Claim):
    """The dot product of independent unit-variance q and k has variance d_k, so its deviation is sqrt(d_k)."""

    topic = "the law"
    source = "paper"
    said = "variance / d_k = 1"
    expected = "confirmed"
    plot = Plot("Flat at 1 (dashed): the variance is d_k at every width.", marks={RATIO: 1.0})

    def measure(self, effort: Effort) -> Iterable[Value]:
        return [value for value in measure_products(effort) if value.quantity == RATIO]

    def judge(self, seen: Evidence) -> Judgement:
        ratios = seen.line(RATIO).values()
        grounds = f"Variance / d_k lies between {min(ratios):.3f} and {max(ratios):.3f} for d_k from 1 to 1024."
        return decide(all(abs(ratio - 1) < TOLERANCE for ratio in ratios), grounds)


@claims.register("typical-11")
@dataclass(frozen=True)
class TypicalEleven(Claim):
    """At d_k = 128 raw scores are typically around 11."""

    topic = "the law"
    source = "textbook wisdom"
    said = "about 11.3, the square root of 128"
    expected = "confirmed"
    plot = Plot(
        "The deviation, and the mean size, which is smaller by sqrt(2/π) for a normal score.",
        log=frozenset({STD, SIZE}),
    )

    def measure(self, effort: Effort) -> Iterable[Value]:
        return [value for value in measure_products(effort) if value.quantity != RATIO]

    def judge(self, seen: Evidence) -> Judgement:
        std, size = seen.mean(STD, x=128), seen.mean(SIZE, x=128)
        grounds = f"The standard deviation is {std:.2f}; the mean size |q.k| is smaller, {size:.2f}."
        return decide(abs(std / 128**0.5 - 1) < TOLERANCE, grounds)

"""Is one method faster than another? A ratio, its interval, and a sentence. Plain numbers: this needs no torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy
from scipy.stats import bootstrap

# A claim that two like methods differ is wrong once in a hundred comparisons.
_CONFIDENCE = 0.99
_RESAMPLES = 9999


@dataclass(frozen=True)
class Comparison:
    """Latency of `name` over that of `baseline`, and the 99 % interval of this ratio."""

    name: str
    baseline: str
    ratio: float
    low: float
    high: float

    @property
    def differs(self) -> bool:
        """Whether the interval excludes equal latency."""
        return not self.low <= 1.0 <= self.high

    @property
    def resolution(self) -> float:
        """The largest relative difference that the interval leaves possible."""
        return max(1.0 - self.low, self.high - 1.0)

    def __str__(self) -> str:
        """`A is faster than B by 8 % [5, 11]`: A takes 8 % less time. Slower by 8 %: A takes 8 % more."""
        if not self.differs:
            return f"{self.name} and {self.baseline}: no difference seen at {_percent(self.resolution)} %"
        if self.ratio < 1.0:
            by, interval, word = 1.0 - self.ratio, (1.0 - self.high, 1.0 - self.low), "faster"
        else:
            by, interval, word = self.ratio - 1.0, (self.low - 1.0, self.high - 1.0), "slower"
        low, high = (_percent(end) for end in interval)
        return f"{self.name} is {word} than {self.baseline} by {_percent(by)} % [{low}, {high}]"


def compare(name: str, samples: Sequence[float], baseline: str, baseline_samples: Sequence[float]) -> Comparison:
    """The ratio of two methods that were sampled in the same rounds: the median of the ratios within a round.

    What slows a whole round cancels in its ratio. The interval is the percentile bootstrap's (Efron & Tibshirani
    1993, chapter 13) over the rounds. Raises ValueError with fewer than two rounds or unlike numbers of samples.
    """
    if len(samples) != len(baseline_samples) or len(samples) < 2:
        raise ValueError(f"{len(samples)} and {len(baseline_samples)} samples cannot be compared round by round")
    ratios = numpy.asarray(samples) / numpy.asarray(baseline_samples)
    low, high = bootstrap(
        (ratios,),
        numpy.median,
        confidence_level=_CONFIDENCE,
        n_resamples=_RESAMPLES,
        method="percentile",
        rng=numpy.random.default_rng(0),
    ).confidence_interval
    return Comparison(name, baseline, float(numpy.median(ratios)), float(low), float(high))


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.2g}" if fraction < 0.1 else f"{100 * fraction:.0f}"

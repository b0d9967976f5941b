"""Statistics of latency samples, derived whenever they are read."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from statistics import median
from typing import NamedTuple


class Latency(NamedTuple):
    """Median and its 95 % interval, in the unit of the samples; the interval is None with too few samples."""

    median: float
    low: float | None
    high: float | None
    samples: int


def summarise_latency(samples: Sequence[float]) -> Latency:
    """Median with the distribution-free interval between two order statistics (Conover 1999, section 3.2).

    The k-th smallest and the k-th largest of n samples enclose the median with probability
    1 - 2 P(Binomial(n, 1/2) < k). That reaches 95 % from 6 samples on.
    """
    if not samples:
        raise ValueError("there is no sample to summarise")
    ordered = sorted(samples)
    rank = _interval_rank(len(ordered))
    if rank == 0:
        return Latency(median(ordered), None, None, len(ordered))
    return Latency(median(ordered), ordered[rank - 1], ordered[-rank], len(ordered))


@cache
def _interval_rank(count: int) -> int:
    """The largest k with P(Binomial(count, 1/2) < k) <= 1/40, in whole numbers; 0 when there is none."""
    ways = below = 1  # of the 2^count outcomes, those with `rank` successes, and those with at most `rank`
    rank = 0
    while 40 * below <= 2**count:
        rank += 1
        ways = ways * (count - rank + 1) // rank
        below += ways
    return rank

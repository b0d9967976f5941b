"""Gates: absolute limits and non-finite counts, which neither asv nor pytest-benchmark can hold a commit to."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import numpy
import pandas as pd

from precision.errors import UsageError, nearest
from precision.history.figures import SERIES

BREACH_COLUMNS = ["commit", "benchmark", "value", "allowed", "reason", "torch", "machine", "source", "date"]


@dataclass(frozen=True)
class Limit:
    """The largest value that benchmarks of a name may have; the name is a shell pattern, parameters included."""

    pattern: str
    value: float

    @classmethod
    def parse(cls, text: str) -> Limit:
        """Read `PATTERN=NUMBER`; raises UsageError on anything else."""
        pattern, equals, number = text.rpartition("=")
        try:
            value = float(number)
        except ValueError:
            value = math.nan
        if not (pattern and equals) or math.isnan(value):
            raise UsageError(f"{text!r} is not of the form PATTERN=NUMBER, as in '*track_out_rms(*fp32*)=1e-6'")
        return cls(pattern, value)

    def matches(self, benchmark: str) -> bool:
        """Whether the limit is meant for this benchmark. Brackets stand for themselves, since names have them."""
        return fnmatchcase(benchmark, self.pattern.replace("[", "[[]"))


def find_breaches(history: pd.DataFrame, limits: Sequence[Limit]) -> pd.DataFrame:
    """What is wrong at the newest figure of each series, with the commit that brought it: columns BREACH_COLUMNS.

    A value must not exceed its limit; of several limits that match, the last one counts. A non-finite count without
    a limit must not exceed the lowest one before it. A value that is not finite is always wrong. A latency is wrong
    when all of its interval exceeds the limit, right when none of it does, and in between as it was before. What was
    wrong once and is right now is no breach. Raises UsageError when a limit matches no benchmark.
    """
    series = history.groupby(SERIES).ngroup()
    judged = history.assign(allowed=_lowest_count_before(history, series), reason="non-finite count rose")
    for limit in limits:
        meant = judged["benchmark"].map(limit.matches)
        if not meant.any():
            raise UsageError(
                f"the limit {limit.pattern!r} matches no benchmark; {nearest(limit.pattern, judged['benchmark'])}"
            )
        judged.loc[meant, "allowed"] = limit.value
        judged.loc[meant, "reason"] = f"limit {limit.pattern}"
    infinite = ~numpy.isfinite(judged["value"])
    judged.loc[infinite, "reason"] = "not finite"
    wrong = infinite | _exceeds(judged, series)
    wrong_since = wrong[::-1].groupby(series).cummin().sort_index()  # at this commit and at every later one
    found: pd.DataFrame = judged[wrong_since].groupby(series).head(1)
    return found.sort_values(["date", "benchmark"])[BREACH_COLUMNS].reset_index(drop=True)


def _exceeds(judged: pd.DataFrame, series: pd.Series[int]) -> pd.Series[bool]:
    """Whether each figure is above what is allowed; one whose interval does not tell is as the one before it."""
    low, high = (judged[end].astype(float).fillna(judged["value"]) for end in ("low", "high"))
    known = pd.Series(numpy.where(low > judged["allowed"], 1.0, numpy.nan), index=judged.index)
    known = known.mask(high <= judged["allowed"], 0.0)
    return known.groupby(series).ffill().fillna(0.0) > 0


def _lowest_count_before(history: pd.DataFrame, series: pd.Series[int]) -> pd.Series[float]:
    """For a non-finite count the lowest one at older commits; infinity for the oldest, and for other figures."""
    counts = history["value"].where(history["kind"] == "nonfinite", math.inf)
    return counts.groupby(series).cummin().groupby(series).shift().fillna(math.inf)

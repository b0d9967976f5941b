"""Measured values of one experiment, and their means with intervals. The values are kept; the rest is derived."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, cast

import pandas as pd
from scipy import stats

_KEY = ["quantity", "setting", "x"]
_CONFIDENCE = 0.95


@dataclass(frozen=True)
class Value:
    """One number: what it is, under which setting, at which x (NaN where there is no axis), from which replicate."""

    quantity: str
    setting: str
    x: float
    replicate: int
    value: float


@dataclass(frozen=True)
class Share(Value):
    """A value between 0 and 1: a part of all, or a mean of such. Its interval lies between 0 and 1, too."""


class Estimate(NamedTuple):
    """A mean over replicates with its 95 % interval: Student's, of shares Wilson's, of one replicate its value."""

    mean: float
    low: float
    high: float
    replicates: int

    def __str__(self) -> str:
        return f"{self.mean:.3g}"


class Evidence:
    """The values of one experiment as a frame with the columns of Value, and whether each `is_share`."""

    def __init__(self, frame: pd.DataFrame) -> None:
        self.frame = frame
        self._estimates: dict[tuple[str, str, float | None], Estimate] = {}
        for key, group in frame.groupby(_KEY, sort=False, dropna=False):
            quantity, setting, x = cast("tuple[str, str, float]", key)
            estimate = _estimate_share if group["is_share"].all() else _estimate
            self._estimates[quantity, setting, None if math.isnan(x) else x] = estimate(group["value"])

    @classmethod
    def of(cls, values: Iterable[Value]) -> Evidence:
        """The evidence that these values are."""
        return cls(pd.DataFrame([{**asdict(value), "is_share": isinstance(value, Share)} for value in values]))

    def at(self, quantity: str, setting: str = "", x: float | None = None) -> Estimate:
        """One estimate; raises KeyError when it was not measured."""
        return self._estimates[quantity, setting, x]

    def mean(self, quantity: str, setting: str = "", x: float | None = None) -> float:
        """The mean of one estimate."""
        return self.at(quantity, setting, x).mean

    def line(self, quantity: str, setting: str = "") -> dict[float, float]:
        """The means along x."""
        return {
            x: estimate.mean
            for (name, at, x), estimate in self._estimates.items()
            if (name, at) == (quantity, setting) and x is not None
        }

    def settings(self, quantity: str) -> dict[str, float]:
        """The means by setting, of a quantity that has no x."""
        return {at: e.mean for (name, at, x), e in self._estimates.items() if name == quantity and x is None}

    def table(self) -> pd.DataFrame:
        """Every estimate: quantity, setting, x, mean, low, high, replicates."""
        rows: list[tuple[Any, ...]] = [(*key, *estimate) for key, estimate in self._estimates.items()]
        return pd.DataFrame(rows, columns=[*_KEY, *Estimate._fields])


def _estimate(values: pd.Series[float]) -> Estimate:
    half = _half_width(values)
    mean = float(values.mean())
    return Estimate(mean, mean - half, mean + half, len(values))


def _estimate_share(values: pd.Series[float]) -> Estimate:
    """Wilson's score interval, for as many draws as would scatter like the replicates.

    So many draws that half^2 = t^2 p (1 - p) / n, Student's t included: Korn & Graubard, "Confidence intervals for
    proportions with small expected number of positive counts estimated from survey data", 1998.
    """
    half, p = _half_width(values), float(values.mean())
    if not half or not 0 < p < 1:  # alike, or apart by what rounding leaves of 0 or 1
        return Estimate(p, p, p, len(values))
    w = half**2 / (p * (1 - p))  # t^2 / n
    root = math.sqrt(half**2 + w**2 / 4)
    # The roots of (x - p)^2 = w x (1 - x), in the form that neither cancels nor leaves [0, 1].
    low, above = (part**2 / (part + w / 2 + root) for part in (p, 1 - p))
    return Estimate(p, low, 1 - above, len(values))


def _half_width(values: pd.Series[float]) -> float:
    """Half the width of the interval by Student's t; 0 where the replicates are alike."""
    spread = float(values.std()) if len(values) > 1 else 0.0
    if not spread:
        return 0.0
    return float(stats.t.ppf((1 + _CONFIDENCE) / 2, len(values) - 1)) * spread / math.sqrt(len(values))

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


class Estimate(NamedTuple):
    """A mean over replicates with its 95 % interval by Student's t; the interval of one replicate is its value."""

    mean: float
    low: float
    high: float
    replicates: int

    def __str__(self) -> str:
        return f"{self.mean:.3g}"


class Evidence:
    """The values of one experiment as a frame with the columns of Value."""

    def __init__(self, frame: pd.DataFrame) -> None:
        self.frame = frame
        self._estimates: dict[tuple[str, str, float | None], Estimate] = {}
        for key, group in frame.groupby(_KEY, sort=False, dropna=False):
            quantity, setting, x = cast("tuple[str, str, float]", key)
            self._estimates[quantity, setting, None if math.isnan(x) else x] = _estimate(group["value"])

    @classmethod
    def of(cls, values: Iterable[Value]) -> Evidence:
        """The evidence that these values are."""
        return cls(pd.DataFrame([asdict(value) for value in values]))

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
    count, mean = len(values), float(values.mean())
    spread = float(values.std()) if count > 1 else 0.0
    half = float(stats.t.ppf((1 + _CONFIDENCE) / 2, count - 1)) * spread / math.sqrt(count) if spread else 0.0
    return Estimate(mean, mean - half, mean + half, count)

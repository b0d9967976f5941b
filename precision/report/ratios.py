"""Latency of each method over that of the yardstick on the same problem, with an interval."""

from __future__ import annotations

import pandas as pd

from precision.latency.ratio import compare
from precision.records.frame import read_samples

YARDSTICK = "sdpa-math"


def ratios_to_yardstick(rows: pd.DataFrame, samples: str, among: pd.DataFrame) -> pd.Series[str]:
    """`0.47 × [0.45, 0.50]` from the column of samples, the yardstick's own being `among` other rows.

    Nothing for the yardstick and where either is missing.
    """
    yardsticks = among[(among["method"] == YARDSTICK) & (among[samples] != "")].groupby("problem")[samples].first()
    pairs = zip(rows["method"], rows[samples], rows["problem"].map(yardsticks).astype(object).fillna(""), strict=True)
    return pd.Series([_ratio(method, *map(read_samples, texts)) for method, *texts in pairs], rows.index, dtype=object)


def _ratio(method: str, own: list[float], yardstick: list[float]) -> str | None:
    if method == YARDSTICK or len(own) < 2 or len(yardstick) < 2:
        return None
    # A method that was sampled by itself, as compiled ones are, may have another number of rounds.
    rounds = min(len(own), len(yardstick))
    found = compare(method, own[:rounds], YARDSTICK, yardstick[:rounds])
    return f"{found.ratio:.2f} × [{found.low:.2f}, {found.high:.2f}]"

"""Which figures moved: each series from its oldest commit to its newest."""

from __future__ import annotations

import numpy
import pandas as pd

from precision.history.figures import SERIES

CHANGE_COLUMNS = ["kind", "benchmark", "first", "last", "change", "commits", "torch", "machine", "source"]


_UNSEEN = 0.005  # a relative change that three digits do not show


def list_changes(history: pd.DataFrame, most: int | None = None) -> pd.DataFrame:
    """One line a series that moved, columns CHANGE_COLUMNS, the largest growth of each kind first; `most` lines a kind.

    `change` is last - first for counts, which may start at 0, and last / first for the other kinds; <NA> where
    the first value is 0.
    """
    series = history.groupby(["kind", *SERIES], sort=False, as_index=False).agg(
        first=("value", "first"), last=("value", "last"), commits=("commit", "nunique")
    )
    series = series[~numpy.isclose(series["first"], series["last"], rtol=_UNSEEN, atol=0, equal_nan=True)]
    ratio = series["last"] / series["first"].where(series["first"] != 0)
    series["change"] = ratio.where(series["kind"] != "nonfinite", series["last"] - series["first"])
    series = series.sort_values(["kind", "change"], ascending=[True, False], kind="stable")
    if most is not None:
        series = series.groupby("kind").head(most)
    return series[CHANGE_COLUMNS].reset_index(drop=True)

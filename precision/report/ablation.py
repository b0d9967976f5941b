"""The 2 x 2 of scale and max-subtraction: which rows of a run belong to it."""

from __future__ import annotations

import pandas as pd

from precision.report.rows import SETTING, label_settings

SCALED, UNSCALED = "sqrt_dk", "none"
_METHODS = ["eager", "eager[max_subtraction=false]"]

# Scale, max-subtraction; from the safest to the least safe.
CELLS = ((SCALED, True), (SCALED, False), (UNSCALED, True), (UNSCALED, False))


def ablation_rows(rows: pd.DataFrame) -> pd.DataFrame:
    """The eager rows of every setting and dtype that was measured in all four cells, with a `label` a setting.

    eager alone rounds each operation to the dtype, so it alone shows what the two steps do.
    """
    taking_part = rows[rows["method"].isin(_METHODS) & rows["scale"].isin([SCALED, UNSCALED]) & (rows["rows"] > 0)]
    cells = taking_part.groupby([*SETTING, "dtype"])["case"].transform("count")
    whole = taking_part[cells == len(CELLS)].sort_values(["is_captured", "d_k"], kind="stable")
    return whole.assign(label=label_settings(whole))


def cell(rows: pd.DataFrame, scale: str, max_subtraction: bool) -> pd.DataFrame:
    """The rows of one of the four cells."""
    return rows[(rows["scale"] == scale) & (rows["max_subtraction"] == max_subtraction)]


def share_nonfinite(rows: pd.DataFrame) -> float:
    """Share of the output rows of all these cases that are not finite."""
    return float(rows["rows_nonfinite"].sum() / rows["rows"].sum())

"""The 2 x 2 of scale and max-subtraction: which rows of a run belong to it."""

from __future__ import annotations

import pandas as pd

from precision.report.limits import MOST_SETTINGS, worst_rows
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


def pooled(rows: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """What a heat map of the ablation shows, and a sentence when that is not every setting by itself.

    Of more settings than a figure can hold, those with the same inputs and d_k are taken together: their rows
    pooled, the median of their errors; and of those the worst.
    """
    if rows["label"].nunique() <= MOST_SETTINGS:
        return rows, ""
    same = ["is_captured", "source_label", "d_k", "dtype", "scale", "max_subtraction"]
    lines = rows.groupby(same, sort=False, as_index=False).agg(
        rows=("rows", "sum"), rows_nonfinite=("rows_nonfinite", "sum"), out_rel_l2=("out_rel_l2", "median")
    )
    lines = lines.assign(
        nonfinite=lines["rows_nonfinite"] / lines["rows"],
        label=lines["source_label"] + ", d " + lines["d_k"].map("{:.0f}".format),
    )
    worst = lines.groupby("label", sort=False)[["nonfinite", "out_rel_l2"]].max().reset_index()
    worst = worst.sort_values(["nonfinite", "out_rel_l2"], ascending=False, kind="stable")
    kept, left_out = worst_rows(worst, -pd.Series(range(len(worst))), MOST_SETTINGS)
    said = " One line is all settings of an input and a d_k: their rows together, the median of their errors."
    return lines[lines["label"].isin(kept["label"])], said + left_out


def cell(rows: pd.DataFrame, scale: str, max_subtraction: bool) -> pd.DataFrame:
    """The rows of one of the four cells."""
    return rows[(rows["scale"] == scale) & (rows["max_subtraction"] == max_subtraction)]


def share_nonfinite(rows: pd.DataFrame) -> float:
    """Share of the output rows of all these cases that are not finite."""
    return float(rows["rows_nonfinite"].sum() / rows["rows"].sum())

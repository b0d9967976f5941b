"""Verdict: what scale and max-subtraction do, to incidence, error and weights."""

from __future__ import annotations

import pandas as pd

from precision.report.ablation import SCALED, UNSCALED, ablation_rows, cell, share_nonfinite
from precision.report.rows import SETTING, dtypes_of, worst_row
from precision.report.show import count, factor_span, listed, number, percent, span


def drawn_incidence(rows: pd.DataFrame) -> str | None:
    """What scale and max-subtraction each do for the share of rows that are not finite, on drawn inputs."""
    four = ablation_rows(rows)
    four = four[~four["is_captured"]]
    if four.empty:
        return None
    dtype = _most_harmed(four)
    four = four[four["dtype"] == dtype]
    neither = share_nonfinite(cell(four, UNSCALED, False))
    if neither == 0:
        return "On drawn inputs no dtype of this run needs the scale or max-subtraction to stay finite."
    return (
        f"{dtype} on drawn inputs: {percent(neither)} of the rows are not finite with neither scale nor "
        f"max-subtraction, {percent(share_nonfinite(cell(four, SCALED, False)))} with the scale alone, "
        f"{percent(share_nonfinite(cell(four, UNSCALED, True)))} with max-subtraction alone."
    )


def captured_incidence(rows: pd.DataFrame) -> str | None:
    """Whether the scale alone keeps the rows finite on captured tensors, and where it does not."""
    four = ablation_rows(rows)
    four = four[four["is_captured"]]
    if four.empty:
        return None
    dtype = _most_harmed(four)
    four = four[four["dtype"] == dtype]
    scaled, shifted = cell(four, SCALED, False), cell(four, UNSCALED, True)
    start = f"{dtype} on real tensors: {percent(share_nonfinite(cell(four, UNSCALED, False)))} with neither; "
    end = f"with max-subtraction alone {percent(share_nonfinite(shifted))}."
    if scaled["rows_nonfinite"].sum() == 0:
        return f"{start}the scale alone keeps every row finite, {end}"
    worst = worst_row(scaled, "rows_nonfinite")
    return (
        f"{start}with the scale alone still {percent(share_nonfinite(scaled))} "
        f"({count(worst['rows_nonfinite'])} of {count(worst['rows'])} rows in {worst['source']}), {end}"
    )


def cost_of_no_scale(rows: pd.DataFrame) -> str | None:
    """The factor by which leaving out the scale raises the error, where everything stays finite."""
    shifted = ablation_rows(rows)
    shifted = shifted[shifted["max_subtraction"] & (shifted["rows_nonfinite"] == 0) & (shifted["out_rms"] > 0)]
    wide = shifted.pivot(index=[*SETTING, "dtype", "is_captured"], columns="scale", values=["out_rms", "out_rel_l2"])
    if not {("out_rms", SCALED), ("out_rms", UNSCALED)} <= set(wide.columns):
        return None
    factors = pd.DataFrame({name: wide[name][UNSCALED] / wide[name][SCALED] for name in ("out_rms", "out_rel_l2")})
    factors = factors.dropna().reset_index()
    if factors.empty:
        return None
    drawn, captured = factors[~factors["is_captured"]], factors[factors["is_captured"]]
    said = []
    if len(drawn):
        each = [
            f"{factor_span(drawn.loc[drawn['dtype'] == dtype, 'out_rms'])} in {dtype}" for dtype in dtypes_of(drawn)
        ]
        said.append(f"{listed(each)} on drawn inputs")
    if len(captured):
        said.append(f"{factor_span(captured['out_rms'])} on real tensors")
    return (
        f"Leaving out the scale multiplies the rms error of eager by {', and by '.join(said)}; relative to the output, "
        f"which grows too, by {factor_span(factors['out_rel_l2'])}."
    )


def lost_weights(rows: pd.DataFrame) -> str | None:
    """How many weights round to zero without the scale, in the dtype that loses most, and how much they carry."""
    problems = ablation_rows(rows).drop_duplicates("problem")
    unscaled, scaled = (problems[problems["scale"] == scale] for scale in (UNSCALED, SCALED))
    if not unscaled["weights_zero"].sum():
        return None
    by_dtype = unscaled.groupby("dtype")[["weights_zero", "pairs"]].sum()
    dtype = str((by_dtype["weights_zero"] / by_dtype["pairs"]).idxmax())
    lost = unscaled[unscaled["dtype"] == dtype]
    kept = scaled[scaled["dtype"] == dtype]
    return (
        f"Without the scale {span(list(lost['lost']), percent)} of the weights round to exactly 0 in {dtype}, with it "
        f"{span(list(kept['lost']), percent)}; a row loses at most {number(lost['weights_zero_mass_max'].max())} "
        "of its weight that way."
    )


def _most_harmed(rows: pd.DataFrame) -> str:
    """The dtype with the largest share of rows not finite with neither scale nor max-subtraction."""
    neither = cell(rows, UNSCALED, False).groupby("dtype")[["rows_nonfinite", "rows"]].sum()
    return str((neither["rows_nonfinite"] / neither["rows"]).idxmax())

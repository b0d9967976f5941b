"""Section: scale and max-subtraction switched on and off."""

from __future__ import annotations

import pandas as pd

from precision.report.ablation import CELLS, SCALED, ablation_rows, cell, pooled
from precision.report.blocks import Cell, Field, Figure, Section, Table
from precision.report.heat_map import draw_heat_map
from precision.report.rows import dtypes_of
from precision.report.show import count, listed
from precision.report.source import Source

# The cells that the table shows, a dtype at the d_k where its trouble is best known.
_TABLE_WIDTH = {"fp16": 64, "bf16": 128, "fp32": 128}
_READ = (
    "One line an input, one panel a dtype, four cells each: scaled is divided by √d_k, raw is not; "
    "max subtracts each row's maximum before the exponential, no max does not."
)


def make_section(source: Source) -> Section | None:
    """Incidence and error in the four cells; None when the run has no complete 2 x 2."""
    rows = ablation_rows(source.rows)
    if rows.empty:
        return None
    lines, said = pooled(rows)
    return Section(
        "ablation",
        "Scale and max-subtraction",
        (
            "The textbook kernel (eager), every operation rounded to the dtype. Max-subtraction never changes the "
            "function that is computed; the scale does, and each setting is held against its own fp64 reference.",
            *_silent(rows),
        ),
        (_incidence(lines, said), *_error(lines, said), *_table(rows)),
    )


def _incidence(rows: pd.DataFrame, said: str) -> Figure:
    return Figure(
        name="ablation-incidence",
        svg=draw_heat_map(rows, "nonfinite"),
        caption=f"Output rows with a NaN or an infinity, in percent. {_READ}{said}",
        alt="Heat map of the share of rows that are not finite, by input, dtype, scale and max-subtraction.",
    )


def _error(rows: pd.DataFrame, said: str) -> list[Figure]:
    if not (rows["out_rel_l2"] > 0).any():
        return []
    figure = Figure(
        name="ablation-error",
        svg=draw_heat_map(rows, "out_rel_l2"),
        caption="Relative error ‖o − o_ref‖₂ / ‖o_ref‖₂ over the finite elements, darker is larger; "
        f"none: no element is finite. {_READ}{said}",
        alt="Heat map of the relative error, by input, dtype, scale and max-subtraction.",
    )
    return [figure]


def _silent(rows: pd.DataFrame) -> list[str]:
    """Rows that look right and are not: the sum of exponentials overflows, though none of them does."""
    unshifted = rows[~rows["max_subtraction"]]
    silent = unshifted["rows_sum_inf_unshifted"] - unshifted["rows_exp_inf_unshifted"]
    if not silent.sum():
        return []
    dtypes = dtypes_of(unshifted[silent > 0])
    return [
        f"Finite is not right: without max-subtraction the sum of exponentials is infinite in {count(silent.sum())} "
        f"rows ({listed(dtypes)}) in which no single exponential is. There every weight becomes 0, and so does the row."
    ]


def _table(rows: pd.DataFrame) -> list[Table]:
    drawn = rows[~rows["is_captured"]]
    lines: list[tuple[Cell, ...]] = []
    for dtype, width in _TABLE_WIDTH.items():
        of_dtype = drawn[drawn["dtype"] == dtype]
        if of_dtype.empty:
            continue
        nearest = of_dtype["label"].iloc[int((of_dtype["d_k"] - width).abs().to_numpy().argmin())]
        chosen = of_dtype[of_dtype["label"] == nearest]
        for scale, max_subtraction in CELLS:
            row = cell(chosen, scale, max_subtraction).iloc[0]
            lines.append(
                (
                    dtype,
                    row["label"],
                    "yes" if scale == SCALED else "no",
                    "yes" if max_subtraction else "no",
                    row["nonfinite"],
                    row["out_max_abs"],
                    row["out_rel_l2"],
                    row["lost"],
                )
            )
    if not lines:
        return []
    fields = (
        Field("dtype", "text"),
        Field("input", "text"),
        Field("scaled", "text"),
        Field("max subtracted", "text"),
        Field("rows not finite", "percent"),
        Field("max error"),
        Field("relative error"),
        Field("weights exactly 0", "percent"),
    )
    return [Table("The four cells, eager, at one d_k a dtype. A dash: no element is finite.", fields, tuple(lines))]

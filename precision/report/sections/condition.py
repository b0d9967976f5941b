"""Section: error against the condition number, and over the worst-case bound."""

from __future__ import annotations

from functools import partial

import pandas as pd
from matplotlib.figure import Figure as Canvas

from precision.formats import find_format
from precision.report.blocks import Cell, Field, Figure, Section, Table
from precision.report.limits import one_point
from precision.report.rows import dtypes_of, groups_by, worst_row
from precision.report.show import number, plural
from precision.report.source import Source
from precision.report.theme import MUTED, draw_svg, log_axis, markers, method_legend, palette

_DODGE = 1.04  # Methods that agree would hide each other, so each is moved aside by this factor.
_TENSORS = ("out", "dq", "dk", "dv")


def make_section(source: Source) -> Section | None:
    """Every measured case as a point; None when there are not two condition numbers, or none is finite."""
    rows = source.rows
    rows = rows[(rows["out_rel_l2"] > 0) & (rows["out_condition"] < float("inf")) & rows["dtype"].isin(dtypes_of(rows))]
    if rows["out_condition"].round(2).nunique() < 2:
        return None
    points, one = one_point(rows, "out_condition", "dtype", "method")
    figure = Figure(
        name="error-against-condition",
        svg=draw_svg(partial(_paint, points, source.methods), height=0.75 + 1.75 * rows["dtype"].nunique()),
        caption=f"{one}, one panel a dtype; lower is better, further right is harder. The condition number "
        "says how much a small relative change of q, k and v changes the output. On the upper dashed line the error is "
        "one rounding times the condition number, as if every input were off by half an ulp; on the lower one it is "
        "one rounding. Relative error over the finite elements; both axes are logarithmic. Methods stand a bit aside.",
        alt="Scatter plot of the relative error over the condition number, by dtype and method.",
    )
    return Section("condition", "Error against the condition number", tuple(_sentences(rows)), (figure, _table(rows)))


def _sentences(rows: pd.DataFrame) -> list[str]:
    over_bound = rows["out_error_over_bound"]
    said = []
    if not (within := rows[over_bound <= 1]).empty:
        largest = worst_row(within, "out_error_over_bound")
        said.append(
            "Within the worst-case bound of what its method rounds, the largest error is "
            f"{number(largest['out_error_over_bound'])} of it ({largest['method']} in {largest['dtype']})."
        )
    if (beyond := rows[over_bound > 1]).empty:
        return [*said, "No case is beyond its bound."]
    worst = worst_row(beyond, "out_error_over_bound")
    return [
        *said,
        f"Beyond it: {plural(len(beyond), 'case')}, which lost more than rounding to the dtype explains, such as a sum "
        f"that overflowed; worst by {number(worst['out_error_over_bound'])} ({worst['method']} in {worst['dtype']}).",
    ]


def _paint(rows: pd.DataFrame, methods: list[str], canvas: Canvas) -> None:
    dtypes, colours, shapes = dtypes_of(rows), palette(methods), markers(methods)
    panels = canvas.subplots(len(dtypes), 1, sharex=True, squeeze=False)[:, 0]
    ends = [rows["out_condition"].min(), rows["out_condition"].max()]
    for axes, dtype in zip(panels, dtypes, strict=True):
        u = find_format(dtype).unit_roundoff
        for (method,), points in groups_by(rows[rows["dtype"] == dtype], "method"):
            aside = _DODGE ** (methods.index(method) - (len(methods) - 1) / 2)
            axes.plot(
                points["out_condition"] * aside, points["out_rel_l2"], linestyle="", marker=shapes[method],
                markersize=4.5, color=colours[method],
            )  # fmt: skip
        for line in ([u, u], [u * end for end in ends]):
            axes.plot(ends, line, color=MUTED, linestyle=(0, (4, 3)), linewidth=1)
        log_axis(axes, "x")
        log_axis(axes, "y")
        axes.set(ylabel="relative error", title=dtype)
    panels[-1].set_xlabel("condition number")
    method_legend(canvas, methods, columns=3)


def _table(rows: pd.DataFrame) -> Table:
    """The largest error over bound of each method and dtype."""
    lines: list[tuple[Cell, ...]] = [
        (method, dtype, len(group), *(group[f"{tensor}_error_over_bound"].max() for tensor in _TENSORS))
        for (method, dtype), group in groups_by(rows, "method", "dtype")
    ]
    fields = (
        Field("method", "code"),
        Field("dtype", "text"),
        Field("cases", "count"),
        *(Field(f"{tensor} error / bound") for tensor in _TENSORS),
    )
    caption = "The largest error over its worst-case bound: at most 1, if rounding to the dtype is all that was lost."
    return Table(caption, fields, tuple(lines), collapsed=True)

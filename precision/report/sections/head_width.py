"""Section: error against d_k."""

from __future__ import annotations

from functools import partial

import pandas as pd
from matplotlib.figure import Figure as Canvas

from precision.report.ablation import SCALED, UNSCALED
from precision.report.blocks import Figure, Section
from precision.report.limits import MOST_PANELS, worst_rows
from precision.report.lines import draw_lines, line_legend
from precision.report.rows import dtypes_of, width_family
from precision.report.show import factor_span, listed
from precision.report.source import Source
from precision.report.theme import draw_svg, log_axis


def make_section(source: Source) -> Section | None:
    """One panel a method; None when d_k does not vary."""
    rows = width_family(source.rows)
    rows = rows[rows["out_rel_l2"] > 0]
    if rows.empty:
        return None
    methods = rows.groupby("method", sort=False)["out_rel_l2"].max().reset_index()
    methods, left_out = worst_rows(methods, methods["out_rel_l2"], MOST_PANELS)
    shown = rows[rows["method"].isin(methods["method"])]
    figure = Figure(
        name="error-against-width",
        svg=draw_svg(partial(_paint, shown), height=0.7 + 2.1 * -(-len(methods) // 2)),
        caption="One panel a method; lower is better. Relative error ‖o − o_ref‖₂ / ‖o_ref‖₂ over the finite elements; "
        f"a point is missing where no element is finite. Both axes are logarithmic.{left_out}",
        alt="Lines of the relative error over d_k, by method, dtype and scale.",
    )
    return Section("width", "Error against d_k", tuple(_growth(rows)), (figure,))


def _growth(rows: pd.DataFrame) -> list[str]:
    """How much the error changes from the smallest to the largest d_k, with the scale and without."""
    low, high = rows["d_k"].min(), rows["d_k"].max()
    finite = rows[(rows["rows_nonfinite"] == 0) & rows["dtype"].isin(dtypes_of(rows))]
    wide = finite.pivot_table(index=["scale", "method", "dtype"], columns="d_k", values="out_rel_l2")
    if not {low, high} <= set(wide.columns):
        return []
    factors = (wide[high] / wide[low]).dropna()
    said = [
        f"{factor_span(of_scale)} {name}"
        for scale, name in ((SCALED, "with the scale"), (UNSCALED, "without it"))
        if len(of_scale := factors[factors.index.get_level_values("scale") == scale])
    ]
    if not said:
        return []
    _, method, dtype = factors.index[int(factors.argmax())]
    return [
        f"From d_k {low:.0f} to {high:.0f} the relative error changes by {listed(said)}; "
        f"it rises most in {method} in {dtype}."
    ]


def _paint(rows: pd.DataFrame, canvas: Canvas) -> None:
    methods = list(dict.fromkeys(rows["method"]))
    dtypes = dtypes_of(rows)
    shown = rows[rows["dtype"].isin(dtypes)]
    columns = min(2, len(methods))
    panels = canvas.subplots(-(-len(methods) // columns), columns, sharex=True, sharey=True, squeeze=False).flat
    for method, axes in zip(methods, panels, strict=False):
        draw_lines(axes, shown[shown["method"] == method], "out_rel_l2", dtypes)
        log_axis(axes, "y")
        axes.set_ylabel("relative error")
        axes.set_title(method)
    for axes in panels:
        axes.set_axis_off()
    line_legend(canvas, dtypes, list(dict.fromkeys(shown["scale"])))

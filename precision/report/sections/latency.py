"""Section: latency beside error."""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from precision.report.blocks import Cell, Field, Figure, Section, Table
from precision.report.limits import MOST_PANELS, worst_rows
from precision.report.ratios import YARDSTICK, ratios_to_yardstick
from precision.report.rows import dtypes_of, label_settings
from precision.report.show import seconds
from precision.report.source import Source
from precision.report.theme import FAINT, draw_svg, log_axis, markers, method_legend, palette

_PANELS = 3  # side by side


def make_section(source: Source) -> Section | None:
    """Every case whose latency was measured; None when none was."""
    rows = source.rows[source.rows["latency"] > 0]
    if rows.empty:
        return None
    rows = rows.assign(label=label_settings(rows))
    blocks: list[Figure | Table] = [_table(rows)]
    drawn, left_out = _slowest_settings(rows[rows["out_rel_l2"] > 0])
    if not drawn.empty:
        lines = -(-drawn["label"].nunique() // _PANELS)
        figure = Figure(
            name="latency-against-error",
            svg=draw_svg(partial(_paint, drawn, source.methods), height=0.8 + 2.3 * lines),
            caption="One panel a setting, one point a method, one band a dtype; nearer to the lower left is better. "
            f"A bar is the 95 % interval of the median latency. Both axes are logarithmic.{left_out}",
            alt="Scatter plot of the relative error over the latency, by setting, dtype and method.",
        )
        blocks.insert(0, figure)
    threads = int(rows["threads"].max())
    sentence = (
        f"Warm latency of one call on {rows['device'].iloc[0]} with {threads} thread{'' if threads == 1 else 's'}, "
        "beside the error that it buys."
    )
    return Section("latency", "Latency and error", (sentence,), tuple(blocks))


def _slowest_settings(rows: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """The rows of as many settings as a figure has panels for, those with the longest latency."""
    settings = rows.groupby("label", sort=False)["latency"].max().reset_index()
    kept, left_out = worst_rows(settings, settings["latency"], MOST_PANELS, "slowest")
    return rows[rows["label"].isin(kept["label"])], left_out


def _paint(rows: pd.DataFrame, methods: list[str], canvas: Canvas) -> None:
    labels, dtypes = list(dict.fromkeys(rows["label"])), dtypes_of(rows)
    columns = min(_PANELS, len(labels))
    grid = canvas.subplots(-(-len(labels) // columns), columns, sharey=True, squeeze=False)
    for label, axes in zip(labels, grid.flat, strict=False):
        here = rows[rows["label"] == label]
        for dtype in dtypes:
            points = here[here["dtype"] == dtype]
            _paint_points(axes, points, methods)
            axes.axhspan(points["out_rel_l2"].min() / 1.3, points["out_rel_l2"].max() * 1.3, color=FAINT, zorder=0)
        log_axis(axes, "x", seconds, most=3)
        log_axis(axes, "y")
        axes.set(xlabel="latency", title=label)
    for axes in grid[:, 0]:
        axes.set_ylabel("relative error")
    for axes in grid.flat[len(labels) :]:
        axes.set_axis_off()
    for line, panels in enumerate(grid):
        _name_bands(panels[min(columns, len(labels) - line * columns) - 1], rows, dtypes)
    method_legend(canvas, methods, columns=4, only=set(rows["method"]))


def _name_bands(axes: Axes, rows: pd.DataFrame, dtypes: list[str]) -> None:
    """The dtype of each band, to the right of a panel."""
    for dtype in dtypes:
        errors = rows.loc[rows["dtype"] == dtype, "out_rel_l2"]
        middle = float(np.exp(np.log(errors).mean()))
        axes.text(1.03, middle, dtype, va="center", size=8.5, transform=axes.get_yaxis_transform())


def _paint_points(axes: Axes, points: pd.DataFrame, methods: list[str]) -> None:
    colours, shapes = palette(methods), markers(methods)
    for _, point in points.iterrows():
        low, high = (point[side] for side in ("latency_low", "latency_high"))
        around = [[point["latency"] - low], [high - point["latency"]]] if np.isfinite(low) else None
        axes.errorbar(
            point["latency"], point["out_rel_l2"], xerr=around, color=colours[point["method"]],
            marker=shapes[point["method"]], markersize=6, elinewidth=1.2,
        )  # fmt: skip


def _table(rows: pd.DataFrame) -> Table:
    shown, left_out = worst_rows(rows, rows["latency"], word="slowest")
    shown = shown.assign(ratio=ratios_to_yardstick(shown, "latency_samples", rows))
    fields = (
        Field("setting", "text"),
        Field("dtype", "text"),
        Field("method", "code"),
        Field("latency", "seconds"),
        Field("95 % interval", "text"),
        Field("first call", "seconds"),
        Field(f"vs {YARDSTICK} [99 %]", "text"),
        Field("peak memory", "bytes"),
        Field("relative error"),
    )
    lines: list[tuple[Cell, ...]] = [
        (
            row["label"],
            row["dtype"],
            row["method"],
            row["latency"],
            _interval(row["latency_low"], row["latency_high"]),
            row["latency_first"],
            row["ratio"],
            row["peak_memory"],
            row["out_rel_l2"],
        )
        for _, row in shown.iterrows()
    ]
    return Table(
        f"Latency: median and its 95 % interval, the first call, and the factor to {YARDSTICK} on the same problem "
        f"with its 99 % interval, from samples taken in turns.{left_out}",
        fields,
        tuple(lines),
    )


def _interval(low: float, high: float) -> str | None:
    return f"{seconds(low)} to {seconds(high)}" if np.isfinite(low) else None

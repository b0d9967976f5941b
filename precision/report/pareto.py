"""The Pareto front of error and latency: the methods that no other one beats in both."""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from precision.report.rows import dtypes_of
from precision.report.show import seconds
from precision.report.theme import MUTED, draw_svg, log_axis, markers, method_legend, palette

_ROOM = 2.0


def front(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows that no other row equals or beats in both latency and rms error, the fastest first."""
    rows = rows.sort_values(["latency", "out_rms"])
    return rows[rows["out_rms"] < rows["out_rms"].cummin().shift(fill_value=np.inf)]


def draw_pareto(rows: pd.DataFrame, methods: list[str]) -> str:
    """The SVG of one setting: a panel a dtype, a point a method, and the front as steps."""
    return draw_svg(partial(_paint, rows, methods), height=3.2)


def _paint(rows: pd.DataFrame, methods: list[str], canvas: Canvas) -> None:
    dtypes = dtypes_of(rows)
    for axes, dtype in zip(canvas.subplots(1, len(dtypes), squeeze=False)[0], dtypes, strict=True):
        points = rows[rows["dtype"] == dtype]
        _paint_points(axes, points, methods)
        log_axis(axes, "x", seconds, most=3)
        log_axis(axes, "y", most=4)
        axes.set(xlabel="latency", title=dtype)
        _paint_front(axes, front(points))
    canvas.axes[0].set_ylabel("rms error")
    method_legend(canvas, methods, columns=4, only=set(rows["method"]))


def _paint_points(axes: Axes, points: pd.DataFrame, methods: list[str]) -> None:
    colours, shapes = palette(methods), markers(methods)
    for method, latency, error in points[["method", "latency", "out_rms"]].itertuples(index=False):
        axes.plot(latency, error, color=colours[method], marker=shapes[method], markersize=6, linestyle="")
    # Room enough that a logarithmic axis has more than one tick, however alike the methods are.
    axes.set_xlim(points["latency"].min() / _ROOM, points["latency"].max() * _ROOM)
    axes.set_ylim(points["out_rms"].min() / _ROOM, points["out_rms"].max() * _ROOM)


def _paint_front(axes: Axes, best: pd.DataFrame) -> None:
    """Steps to the edges: what lies above and to the right of them is beaten in both."""
    (_, right), (_, top) = axes.get_xlim(), axes.get_ylim()
    latency = [best["latency"].iloc[0], *best["latency"], right]
    error = [top, *best["out_rms"], best["out_rms"].iloc[-1]]
    axes.step(latency, error, where="post", color=MUTED, linewidth=1.2, zorder=0)

"""Values by dtype and scale: colour and marker say the dtype, the dash or the filling says the scale."""

from __future__ import annotations

from typing import Literal

import pandas as pd
import seaborn
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D

from precision.report.ablation import SCALED, UNSCALED
from precision.report.rows import groups_by
from precision.report.theme import MUTED, PAPER, markers, palette, width_ticks

_Dash = Literal["-"] | tuple[float, tuple[float, float]]
_DASHES: dict[str, _Dash] = {SCALED: "-", UNSCALED: (0, (2.2, 1.6))}
_NAMES = {SCALED: "scaled", UNSCALED: "not scaled"}


def draw_lines(axes: Axes, rows: pd.DataFrame, column: str, dtypes: list[str]) -> None:
    """One line a dtype and scale; a point that was not measured, or is not finite, is left out."""
    colours, shapes = palette(dtypes), markers(dtypes)
    for (dtype, scale), line in groups_by(rows, "dtype", "scale"):
        seaborn.lineplot(
            line, x="d_k", y=column, ax=axes, color=colours[dtype], marker=shapes[dtype], linestyle=_DASHES[scale],
            errorbar=None, markeredgewidth=1.4, markeredgecolor=colours[dtype],
            markerfacecolor=colours[dtype] if scale == SCALED else PAPER, legend=False,
        )  # fmt: skip
    width_ticks(axes, sorted(set(rows["d_k"])))
    axes.set_xlabel("d_k")


def draw_points(axes: Axes, rows: pd.DataFrame, column: str, dtypes: list[str]) -> None:
    """One point a captured call, dtype and scale; hollow where the scale is left out."""
    calls = list(dict.fromkeys(rows["label"]))
    colours, shapes = palette(dtypes), markers(dtypes)
    for (dtype, scale), points in groups_by(rows, "dtype", "scale"):
        axes.plot(
            [calls.index(label) for label in points["label"]], points[column], linestyle="", marker=shapes[dtype],
            color=colours[dtype], markerfacecolor=colours[dtype] if scale == SCALED else "none", markeredgewidth=1.4,
        )  # fmt: skip
    axes.set_xticks(range(len(calls)), [label.split(",")[0] for label in calls], rotation=30, ha="right")


def line_legend(canvas: Canvas, dtypes: list[str], scales: list[str]) -> None:
    """What the colours, markers and dashes mean, above the panels."""
    colours, shapes = palette(dtypes), markers(dtypes)
    handles = [Line2D([], [], color=colours[dtype], marker=shapes[dtype], label=dtype) for dtype in dtypes]
    handles += [
        Line2D([], [], color=MUTED, linestyle=_DASHES[scale], label=_NAMES[scale], marker="o",
               markerfacecolor=MUTED if scale == SCALED else PAPER)
        for scale in scales
    ]  # fmt: skip
    canvas.legend(handles=handles, loc="outside upper left", ncols=len(handles), handlelength=2.2, columnspacing=1.4)

"""The four cells of the ablation as a heat map, a line an input."""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd
import seaborn
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure as Canvas
from matplotlib.patches import Rectangle

from precision.report.ablation import CELLS
from precision.report.rows import dtypes_of
from precision.report.theme import FAINT, HOLE, INK, PAPER, draw_svg

_HEADERS = ["scaled\nmax", "scaled\nno max", "raw\nmax", "raw\nno max"]

# Both keep clear of the colours of a light and of a dark page.
_COLOURS = {"nonfinite": "flare", "out_rel_l2": "crest"}


def draw_heat_map(rows: pd.DataFrame, column: str) -> str:
    """One panel a dtype; `column` is nonfinite or out_rel_l2 of rows that have the four cells and a label."""
    settings = rows["label"].nunique()
    return draw_svg(partial(_paint, rows, column), height=1.15 + 0.27 * settings)


def _paint(rows: pd.DataFrame, column: str, canvas: Canvas) -> None:
    dtypes = dtypes_of(rows)
    panels = canvas.subplots(1, len(dtypes), sharey=True, squeeze=False)[0]
    values = rows[column].where(rows[column] > 0)
    norm = Normalize(0, 100) if column == "nonfinite" else LogNorm(values.min(), values.max())
    for axes, dtype in zip(panels, dtypes, strict=True):
        grid = _grid(rows[rows["dtype"] == dtype], list(dict.fromkeys(rows["label"])), column)
        _paint_panel(axes, grid, norm, column)
        axes.set_title(dtype)


def _grid(rows: pd.DataFrame, labels: list[str], column: str) -> pd.DataFrame:
    """Settings by cells; NaN where nothing is finite or nothing was measured."""
    by_setting = rows.set_index(["label", "scale", "max_subtraction"])[column]
    wide = by_setting.unstack(["scale", "max_subtraction"]).reindex(index=labels, columns=pd.Index(CELLS))
    return wide * 100 if column == "nonfinite" else wide


def _paint_panel(axes: Axes, grid: pd.DataFrame, norm: Normalize, column: str) -> None:
    quiet = grid.isna() | (grid == 0)
    seaborn.heatmap(
        grid, mask=quiet, ax=axes, norm=norm, vmin=norm.vmin, vmax=norm.vmax, cmap=_COLOURS[column], cbar=False,
        annot=grid.map(partial(_short, column)), fmt="", annot_kws={"size": 7.5},
    )  # fmt: skip
    values = grid.to_numpy(dtype=float)
    for line, place in np.argwhere(quiet.to_numpy()):  # seaborn leaves these empty
        value = float(values[line, place])
        if np.isnan(value):
            axes.add_patch(Rectangle((place, line), 1, 1, facecolor=HOLE))
        axes.text(place + 0.5, line + 0.5, _short(column, value), ha="center", va="center", color=INK, size=7.5)
    axes.set_facecolor(FAINT)
    axes.hlines(range(len(grid) + 1), 0, len(CELLS), color=PAPER, linewidth=1.2)
    axes.vlines(range(len(CELLS) + 1), 0, len(grid), color=PAPER, linewidth=1.2)
    axes.grid(False)
    axes.set_xticks(np.arange(len(CELLS)) + 0.5, _HEADERS, rotation=0, size=7)
    axes.set(xlabel="", ylabel="")
    axes.tick_params(length=0)


def _short(column: str, value: float) -> str:
    if np.isnan(value):
        return "none"
    if value == 0:
        return "0"
    if column == "out_rel_l2":
        mantissa, exponent = f"{value:.0e}".split("e")
        return f"{mantissa}e{int(exponent)}" if value < 0.095 else f"{value:.1f}"
    if value < 0.1:
        return "< 0.1"
    return f"{value:.0f}" if value == 100 or 10 <= value < 99 else f"{value:.1f}"

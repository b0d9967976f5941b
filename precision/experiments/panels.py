"""The four kinds of panel: lines with bands, dots with intervals, curves over training, and a grid of values."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
import seaborn
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from precision.report.theme import INK, MUTED, PAPER, log_axis, markers, palette, width_ticks

_VISIBLE = 0.01  # of the height of a panel: a narrower band is hidden by its line
_ROOM = 1.5  # factor beyond the values on a logarithmic axis, for the markers
_DASHED = (0, (2.2, 1.6))


def draw_lines(axes: Axes, rows: pd.DataFrame, settings: list[str], with_markers: bool) -> None:
    """A line a setting over x; colours and markers are those of the setting's place among all settings."""
    colours, shapes = palette(settings), markers(settings)
    for setting, line in rows.groupby("setting", sort=False):
        colour = colours[str(setting)]
        axes.plot(line["x"], line["mean"], color=colour, marker=shapes[str(setting)] if with_markers else "")
        if (line["high"] - line["low"]).max() > _VISIBLE * (rows["high"].max() - rows["low"].min()):
            # What is positive has no negative part of an interval to show.
            low = line["low"].clip(lower=0) if (rows["mean"] >= 0).all() else line["low"]
            axes.fill_between(line["x"], low, line["high"], color=colour, alpha=0.2, linewidth=0)


def draw_dots(axes: Axes, rows: pd.DataFrame) -> None:
    """A dot a setting, one below the other, its interval as a bar."""
    seaborn.pointplot(rows, x="mean", y="setting", ax=axes, color=INK, linestyle="none", errorbar=None, markersize=5)
    axes.hlines(range(len(rows)), rows["low"], rows["high"], color=INK, linewidth=1.6)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set(xlabel="", ylabel="")
    axes.xaxis.set_major_locator(MaxNLocator(4))
    if rows["high"].max() == rows["low"].min():  # alike values would leave an axis of meaningless digits
        axes.set_xlim(rows["mean"].min() - 1, rows["mean"].min() + 1)


def draw_grid(axes: Axes, rows: pd.DataFrame) -> None:
    """Settings by x, each value written in its cell; the colours are logarithmic."""
    grid = rows.pivot_table(index="setting", columns="x", values="mean", sort=False)
    grid.columns = grid.columns.astype(int)
    seaborn.heatmap(
        grid, ax=axes, norm=LogNorm(), cmap="crest", cbar=False, annot=True, fmt=".2g", annot_kws={"size": 7.5},
        linewidths=1, linecolor=PAPER,
    )  # fmt: skip
    axes.set(ylabel="")
    axes.grid(False)
    axes.tick_params(length=0)
    axes.tick_params(axis="y", rotation=0)


def draw_rights(axes: Axes, rows: pd.DataFrame, rights: Mapping[tuple[str, float | None], float]) -> None:
    """Hollow diamonds at right values, by setting and x, over the dots or lines of a panel."""
    settings = list(dict.fromkeys(rows["setting"]))
    places = [(right, settings.index(at)) if x is None else (x, right) for (at, x), right in rights.items()]
    if places:
        axes.plot(
            *zip(*places, strict=True), linestyle="", marker="D", markersize=8, markerfacecolor="none",
            markeredgecolor=MUTED, markeredgewidth=1.2,
        )  # fmt: skip


def draw_mark(axes: Axes, value: float, across: bool) -> None:
    """A dashed line at what is expected: across the panel at a height, or upright."""
    (axes.axhline if across else axes.axvline)(value, color=MUTED, linestyle=_DASHED, linewidth=1)


def finish_axes(axes: Axes, rows: pd.DataFrame, label: str, base2: bool, logarithmic: bool) -> None:
    """Ticks and scales of a panel with lines."""
    if base2:
        width_ticks(axes, sorted(set(rows["x"])))
    axes.set_xlabel(label)
    if logarithmic:
        positive = rows["mean"][rows["mean"] > 0]  # an interval may reach 0, which has no place here
        least, most = float(positive.min()), float(positive.max())
        room = max(_ROOM, (most / least) ** 0.06)
        axes.set_ylim(least / room, most * room)
        log_axis(axes, "y")


def finish_dots(axes: Axes, logarithmic: bool) -> None:
    """The scale of a panel with dots."""
    if logarithmic:
        log_axis(axes, "x")


def draw_legend(canvas: Figure, settings: list[str], columns: int) -> None:
    """What the lines mean, above the panels."""
    colours, shapes = palette(settings), markers(settings)
    handles = [Line2D([], [], color=colours[name], marker=shapes[name], label=name) for name in settings]
    canvas.legend(handles=handles, loc="outside upper left", ncols=columns, columnspacing=1.4)

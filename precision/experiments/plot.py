"""One way to draw any experiment: a panel a quantity, in the order in which they were measured."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from precision.experiments import panels
from precision.experiments.compact import compact
from precision.experiments.evidence import Evidence
from precision.report.theme import draw_svg

_PANEL = 2.1  # inches high
_LINE = 0.22  # inches for each setting of a panel that has one below the other
_LEGEND = 0.35  # inches for each line of the legend
_LEGEND_COLUMNS = 4
_TITLE = 68  # characters across the figure


@dataclass(frozen=True)
class Plot:
    """How to draw the values of an experiment.

    `x` names the axis, `base2` makes it logarithmic with a tick at every value; quantities in `log` have a
    logarithmic axis; those in `curves` are drawn against training steps, and those in `grids` as settings by x;
    `marks` draws a dashed line at what is expected of a quantity. `shown` names the quantities to draw, all when
    it is empty.
    """

    caption: str
    x: str = "d_k"
    base2: bool = True
    log: frozenset[str] = frozenset()
    curves: frozenset[str] = frozenset()
    grids: frozenset[str] = frozenset()
    marks: dict[str, float] = field(default_factory=dict)
    shown: tuple[str, ...] = ()


# Quantity, setting and x (None where there is no axis) of a value, and its right value.
Rights = Mapping[tuple[str, str, float | None], float]


def draw(plot: Plot, seen: Evidence, rights: Rights | None = None) -> str:
    """The SVG of an experiment, with hollow marks at the right values that are given."""
    table = seen.table()
    if plot.shown:
        table = table[table["quantity"].isin(plot.shown)]
    quantities = list(dict.fromkeys(table["quantity"]))
    # The settings of dots are written out beside them and need the width.
    columns = min(2, len(quantities)) if table["x"].notna().all() else 1
    sizes = [_height(plot, table[table["quantity"] == name]) for name in quantities]
    heights = [max(sizes[at : at + columns]) for at in range(0, len(sizes), columns)]
    drawn_as_lines = table["x"].notna() & ~table["quantity"].isin(plot.grids)
    settings = list(dict.fromkeys(table["setting"][drawn_as_lines]))
    legend = math.ceil(len(settings) / _LEGEND_COLUMNS) if len(settings) > 1 else 0

    def paint(canvas: Figure) -> None:
        grid = canvas.subplots(len(heights), columns, squeeze=False, gridspec_kw={"height_ratios": heights}).flat
        for quantity, axes in zip(quantities, grid, strict=False):
            rows = table[table["quantity"] == quantity]
            _panel(axes, plot, quantity, rows, settings)
            panels.draw_rights(
                axes, rows, {key[1:]: right for key, right in (rights or {}).items() if key[0] == quantity}
            )
            axes.set_title(textwrap.fill(quantity, _TITLE // columns))
        for axes in grid:  # what is left
            axes.set_axis_off()
        if legend:
            panels.draw_legend(canvas, settings, _LEGEND_COLUMNS)

    return compact(draw_svg(paint, height=sum(heights) + _LEGEND * legend))


def _panel(axes: Axes, plot: Plot, quantity: str, rows: pd.DataFrame, settings: list[str]) -> None:
    has_x, mark = bool(rows["x"].notna().any()), plot.marks.get(quantity)
    if quantity in plot.grids:
        panels.draw_grid(axes, rows)
        axes.set_xlabel(plot.x)
        return
    if mark is not None:
        panels.draw_mark(axes, mark, across=has_x)
    if not has_x:
        panels.draw_dots(axes, rows)
        panels.finish_dots(axes, quantity in plot.log)
        return
    is_curve = quantity in plot.curves
    panels.draw_lines(axes, rows, settings, with_markers=not is_curve)
    label = "step" if is_curve else plot.x
    panels.finish_axes(axes, rows, label, plot.base2 and not is_curve, quantity in plot.log)


def _height(plot: Plot, rows: pd.DataFrame) -> float:
    if rows["x"].notna().any() and str(rows["quantity"].iloc[0]) not in plot.grids:
        return _PANEL
    return max(1.3, 0.75 + _LINE * rows["setting"].nunique())

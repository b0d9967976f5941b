"""An attribution as stacked bars: for each tensor the stages alone, and their Shapley values."""

from __future__ import annotations

from functools import partial

import seaborn
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.patches import Patch
from matplotlib.ticker import PercentFormatter

from precision.explain.attribution import OTHERS, Attribution
from precision.report.blocks import Figure
from precision.report.theme import HOLE, INK, MUTED, PAPER, draw_svg, palette

Colour = tuple[float, float, float] | str

_BAR, _LEGEND, _AXIS = 0.27, 0.22, 0.45  # inches: of a bar, of a line of the legend, of the axis
_COLUMNS = 7  # of the legend
_DARK = 0.18  # relative luminance up to which white has the better contrast
_SEEN = 0.005  # share of a bar from which a piece can be seen
_NAMED = 0.016  # share of a bar for each character of a name that is written into its piece


def draw_attribution(found: Attribution, name: str = "attribution") -> Figure:
    """The figure of an attribution in which some tensor has an error."""
    groups = _visible(found)
    legend = -(-(len(groups) + 1) // _COLUMNS)
    height = _AXIS + _LEGEND * legend + 2 * _BAR * len(found.tensors) + 0.1
    return Figure(
        name=name,
        svg=draw_svg(partial(_paint, found, groups), height=height),
        caption="Shares of the mean square error of the whole plan. Alone: each stage rounded and no other; the bar "
        "ends at 100 % (dashed) where errors are independent. Shapley: what each stage adds over all orders; that "
        "always adds up.",
        alt=f"Stacked bars: the contribution of each stage to the {found.error} error of {', '.join(found.tensors)}.",
    )


def _visible(found: Attribution) -> list[str]:
    """The groups that can be seen in some bar, in the order of the data path; only they need a colour of their own."""
    seen = {
        c.group
        for c in found.contributions
        if max(abs(c.share), c.alone.mean_square / found.total[c.tensor].mean_square) > _SEEN
    }
    return [group for group in dict.fromkeys(c.group for c in found.contributions) if group in seen - {OTHERS}]


def _paint(found: Attribution, groups: list[str], canvas: Canvas) -> None:
    axes = canvas.subplots()
    named: dict[str, Colour] = {**palette(groups)}
    colours = {c.group: named.get(c.group, HOLE) for c in found.contributions}
    for line, tensor in enumerate(found.tensors):
        total = found.total[tensor].mean_square
        parts = found.of(tensor)
        _stack(axes, 2 * line, [(part.group, part.alone.mean_square / total) for part in parts], colours)
        _stack(axes, 2 * line + 1, [(part.group, part.share) for part in parts], colours)
    labels = [f"{tensor}, {kind}" for tensor in found.tensors for kind in ("alone", "Shapley")]
    axes.set_yticks(range(len(labels)), labels)
    axes.invert_yaxis()
    axes.axvline(1.0, color=MUTED, linestyle=(0, (2.2, 1.6)), linewidth=1)
    axes.xaxis.set_major_formatter(PercentFormatter(1))
    axes.set_xlabel(f"share of the mean square of the {found.error} error")
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)
    handles = [Patch(color=colour, label=group) for group, colour in {**named, OTHERS: HOLE}.items()]
    canvas.legend(handles=handles, loc="outside upper left", ncols=_COLUMNS, handlelength=1.0, columnspacing=1.2)


def _stack(axes: Axes, y: int, parts: list[tuple[str, float]], colours: dict[str, Colour]) -> None:
    """Pieces one after the other from 0: those that add to the right, those that take away to the left."""
    ends = {True: 0.0, False: 0.0}
    for group, width in parts:
        colour, start = colours[group], ends[width >= 0]
        ends[width >= 0] += width
        axes.barh(y, width, left=start, height=0.78, color=colour, edgecolor=PAPER, linewidth=0.8)
        if abs(width) > _NAMED * (len(group) + 1):
            # The pieces look the same on light and on dark pages, and so must what stands on them.
            dark = colour != HOLE and seaborn.utils.relative_luminance(colour) < _DARK
            ink = INK if colour == HOLE else "white" if dark else "black"
            axes.text(start + width / 2, y, group, ha="center", va="center", size=7.5, color=ink)

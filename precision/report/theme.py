"""How figures look: one style, colours for colour-blind readers, and one SVG for light and dark pages."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Container
from typing import Any, Literal

import matplotlib
import seaborn
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from precision.report.show import number

# Colours that stand for a role while a figure is drawn; in the SVG each becomes a CSS variable with a value for
# light and one for dark pages. They differ from every colour that a palette has.
INK, MUTED, GRID, PAPER, HOLE, FAINT = "#010203", "#010204", "#010205", "#010206", "#010207", "#010208"
_VARIABLES = {
    INK: ("ink", "#1f2328", "#e6edf3"),
    MUTED: ("muted", "#57606a", "#9aa4af"),
    GRID: ("grid", "#d8dee4", "#30363d"),
    PAPER: ("paper", "#ffffff", "#14181d"),
    HOLE: ("hole", "#d0d7de", "#3d444d"),
    FAINT: ("faint", "#f3f5f7", "#1f252c"),
}
_FONTS = "'DejaVu Sans', Verdana, sans-serif"

_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "attention-precision",
    "text.parse_math": False,  # a file may be called $x$
    "font.family": "DejaVu Sans",
    "font.size": 9.5,
    "axes.labelsize": 9.5,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "legend.fontsize": 8.5,
    "legend.frameon": False,
    "legend.title_fontsize": 8.5,
    "figure.facecolor": PAPER,
    "axes.facecolor": PAPER,
    "savefig.facecolor": PAPER,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.edgecolor": MUTED,
    "axes.linewidth": 0.8,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.major.size": 3.0,
    "ytick.major.size": 3.0,
    "lines.linewidth": 1.6,
    "lines.markersize": 5.5,
}

_PALETTE = [colour for colour in seaborn.color_palette("colorblind") if colour[2] > 0.25 or colour[0] < 0.9]
_MARKERS = ["o", "s", "^", "D", "v", "P", "X", "*"]

# Where a decade has its ticks, the densest first.
_SUBS = ((1.0, 2.0, 5.0), (1.0, 3.0), (1.0,))

# Wide enough for three panels, narrow enough that its text stays readable on a phone.
WIDTH = 6.2  # inches


def draw_svg(paint: Callable[[Figure], None], height: float, width: float = WIDTH) -> str:
    """The SVG that a function paints on an empty figure (inches); the same data give the same bytes."""
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        paint(figure)
        file = io.StringIO()
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    return _theme(file.getvalue())


def _theme(svg: str) -> str:
    for role, (name, _, _) in _VARIABLES.items():
        svg = svg.replace(role, f"var(--{name})")
    light = "".join(f"--{name}:{colour};" for name, colour, _ in _VARIABLES.values())
    dark = "".join(f"--{name}:{colour};" for name, _, colour in _VARIABLES.values())
    style = f"<style>svg{{{light}}}@media(prefers-color-scheme:dark){{svg{{{dark}}}}}</style>"
    start = svg.index("<svg")
    end = svg.index(">", start) + 1
    return (svg[start:end] + style + svg[end:]).replace("'DejaVu Sans'", _FONTS)


def palette(names: list[str]) -> dict[str, tuple[float, float, float]]:
    """A colour for each name, always the same for the same list."""
    return {name: _PALETTE[index % len(_PALETTE)] for index, name in enumerate(names)}


def markers(names: list[str]) -> dict[str, str]:
    """A marker for each name, so that colour is never the only difference."""
    return {name: _MARKERS[index % len(_MARKERS)] for index, name in enumerate(names)}


def log_axis(axes: Axes, name: Literal["x", "y"], form: Callable[[float], str] = number, most: float = 5) -> None:
    """Make an axis logarithmic, once its data are drawn, with about `most` ticks in the numbers of the tables."""
    getattr(axes, f"set_{name}scale")("log")
    axis = axes.xaxis if name == "x" else axes.yaxis
    low, high = axis.get_view_interval()
    if high < 1.5 * low:  # values that are all alike would leave an axis without a tick
        low, high = low / 2, high * 2
        getattr(axes, f"set_{name}lim")(low, high)
    decades = math.log10(high / low)
    subs = next((subs for subs in _SUBS if len(subs) * decades <= most), _SUBS[-1])
    axis.set_major_locator(LogLocator(subs=subs, numticks=6))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: form(value)))


def width_ticks(axes: Axes, widths: list[float]) -> None:
    """A base-2 axis of d_k with a tick at every d_k that was measured."""
    axes.set_xscale("log", base=2)
    axes.set_xticks(widths, [f"{width:.0f}" for width in widths])
    axes.xaxis.set_minor_locator(NullLocator())


def method_legend(canvas: Figure, methods: list[str], columns: int, only: Container[str] | None = None) -> None:
    """Colour and marker of each method, or of those among them that the figure shows, above the panels."""
    colours, shapes = palette(methods), markers(methods)
    shown = [name for name in methods if only is None or name in only]
    handles = [Line2D([], [], color=colours[name], marker=shapes[name], linestyle="", label=name) for name in shown]
    canvas.legend(handles=handles, loc="outside upper left", ncols=columns, handletextpad=0.3, columnspacing=1.2)

"""Error, latency, memory and non-finite counts over commits, one column of panels for each torch version."""

from __future__ import annotations

import math

import pandas as pd
import seaborn
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, MaxNLocator

from precision.history.figures import SERIES
from precision.report.theme import MUTED, draw_svg, log_axis, palette

HOW_TO_READ = (
    "Each benchmark relative to its oldest commit: 1 means unchanged, lower is better; counts are shown as they are. "
    "The grey line is the median of all benchmarks and its band reaches from the lowest to the highest. Coloured "
    "lines are benchmarks that a gate found wrong, at most six."
)
_KINDS = {
    "error": "error / oldest",
    "latency": "latency / oldest",
    "memory": "memory / oldest",
    "nonfinite": "non-finite",
}
_COLOURED = 6
_ROW_HEIGHT = 1.7  # inches


def draw_history(history: pd.DataFrame, breaches: pd.DataFrame) -> str:
    """The history as an SVG; HOW_TO_READ belongs below it."""
    lines = _prepare(history)
    kinds = [kind for kind in _KINDS if (lines["kind"] == kind).any()]
    versions = sorted(lines["torch"].unique())
    colours = palette(list(breaches["benchmark"].unique()[:_COLOURED]))
    commits = list(history["commit"].unique())

    def paint(figure: Figure) -> None:
        panels = figure.subplots(len(kinds), len(versions), squeeze=False, sharex=True, sharey="row")
        for row, kind in zip(panels, kinds, strict=True):
            for axes, version in zip(row, versions, strict=True):
                _paint_panel(axes, lines[(lines["kind"] == kind) & (lines["torch"] == version)], colours)
            row[0].set_ylabel(_KINDS[kind])
            _scale(row[0], kind, lines.loc[lines["kind"] == kind, "shown"])
        for axes, version in zip(panels[0], versions, strict=True):
            axes.set_title(f"torch {version}")
        for axes in panels[-1]:
            axes.xaxis.set_major_locator(FixedLocator(range(len(commits))))
            axes.set_xticklabels(commits, rotation=45, ha="right", rotation_mode="anchor")
            axes.set_xlabel("commit, the oldest first")
        if colours:
            handles = [Line2D([], [], color=colour, marker="o") for colour in colours.values()]
            figure.legend(handles, list(colours), loc="outside lower left")

    return draw_svg(paint, 0.9 + _ROW_HEIGHT * len(kinds) + 0.22 * len(colours))


def _prepare(history: pd.DataFrame) -> pd.DataFrame:
    """The history with `place` of the commit on the x axis, and `shown`, what stands on the y axis."""
    places = {commit: place for place, commit in enumerate(history["commit"].unique())}
    oldest = history.groupby(SERIES)["value"].transform("first")
    relative = history["value"] / oldest.where(oldest > 0)
    shown = relative.where(history["kind"] != "nonfinite", history["value"])
    lines = history.assign(place=history["commit"].map(places), shown=shown)
    return lines[lines["shown"].map(math.isfinite)]


def _paint_panel(axes: Axes, lines: pd.DataFrame, colours: dict[str, tuple[float, float, float]]) -> None:
    common = {"x": "place", "y": "shown", "marker": "o", "legend": False, "ax": axes}
    seaborn.lineplot(lines, color=MUTED, estimator="median", errorbar=("pi", 100), **common)
    wrong = lines[lines["benchmark"].isin(colours)]
    if not wrong.empty:
        seaborn.lineplot(wrong, hue="benchmark", palette=colours, estimator=None, **common)
    axes.set(xlabel="", ylabel="")


def _scale(axes: Axes, kind: str, shown: pd.Series[float]) -> None:
    """Whole numbers for counts, from 0 to 1 at least; a logarithmic axis for what spans a decade."""
    if kind == "nonfinite":
        axes.set_ylim(-0.05 * max(shown.max(), 1), 1.1 * max(shown.max(), 1))
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    elif shown.max() > 10 * shown.min():
        log_axis(axes, "y")

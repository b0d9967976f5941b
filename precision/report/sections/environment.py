"""Section: where the run took place and where its time went."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import seaborn
from matplotlib.figure import Figure as Canvas

from precision.report.blocks import Field, Figure, Section, Table
from precision.report.show import number, percent, seconds
from precision.report.source import Source
from precision.report.theme import INK, draw_svg

_WORK = ("kernels", "references")


def make_section(source: Source) -> Section:
    """The environment as it was observed, and the seconds of each part of the work."""
    record = source.record
    observed = {
        **record.environment,
        "code": record.code,
        "started": record.started,
        "finished": record.finished or "not finished",
    }
    table = Table(
        "The environment. Rows of unlike environments are never pooled.",
        (Field("what", "text"), Field("value", "code")),
        tuple((name, _text(value)) for name, value in observed.items()),
    )
    blocks: list[Table | Figure] = [table]
    sentences: tuple[str, ...] = ()
    parts = _parts(record.seconds)
    if parts:
        sentences = (_overhead(parts),)
        blocks.append(_time_table(parts))
        blocks.append(
            Figure(
                name="where-time-went",
                svg=draw_svg(partial(_paint, parts), height=0.55 + 0.26 * len(parts)),
                caption="One bar a part of the work, in seconds; together they are the wall time of the run.",
                alt="Bar chart of the seconds of each part of the run.",
            )
        )
    return Section("environment", "Environment and time", sentences, tuple(blocks))


def _text(value: object) -> str | None:
    """A setting as text; several on one line, and nothing for none."""
    if isinstance(value, dict):
        return ", ".join(f"{name} {each}" for name, each in value.items()) or None
    return str(value)


def _parts(measured: Mapping[str, float]) -> dict[str, float]:
    """Seconds by part, the longest first; `rest` is what the wall clock saw and no part claims."""
    parts = {name: value for name, value in measured.items() if name != "wall"}
    if "wall" in measured:
        parts["rest"] = max(0.0, measured["wall"] - sum(parts.values()))
    return dict(sorted(parts.items(), key=lambda part: -part[1]))


def _overhead(parts: Mapping[str, float]) -> str:
    wall, work = sum(parts.values()), sum(parts.get(name, 0.0) for name in _WORK)
    said = f"The run took {seconds(wall)}"
    return f"{said}: {number(wall / work)} times its kernels and references." if work else f"{said}."


def _time_table(parts: Mapping[str, float]) -> Table:
    wall = sum(parts.values())
    fields = (Field("part", "text"), Field("time", "seconds"), Field("share", "percent"))
    return Table("Where the time went.", fields, tuple((name, value, value / wall) for name, value in parts.items()))


def _paint(parts: Mapping[str, float], canvas: Canvas) -> None:
    axes = canvas.subplots()
    wall = sum(parts.values())
    bars = seaborn.barplot(x=list(parts.values()), y=list(parts), ax=axes, color=seaborn.color_palette("colorblind")[0])
    texts = [f"{seconds(value)}, {percent(value / wall)}" for value in parts.values()]
    bars.bar_label(bars.containers[0], texts, padding=4, color=INK, size=8.5)
    axes.grid(False, axis="y")
    axes.margins(x=0.22)
    axes.set(xlabel="seconds")

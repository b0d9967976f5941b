"""Section: the cases that gave no numbers, and why."""

from __future__ import annotations

from precision.report.blocks import Cell, Field, Section, Table
from precision.report.limits import worst_rows
from precision.report.show import distinct, plural
from precision.report.source import Source


def make_section(source: Source) -> Section | None:
    """Every hole, grouped by status, method and reason; None when there is none."""
    holes = source.frame[source.frame["status"] != "ok"]
    if holes.empty:
        return None
    alike = holes.groupby(["status", "method", "note"], sort=False).agg(
        cases=("case", "size"), sweeps=("sweep", distinct), dtypes=("dtype", distinct)
    )
    shown, left_out = worst_rows(alike, alike["cases"], word="most frequent")
    lines: list[tuple[Cell, ...]] = [
        (status, method, cases, sweeps, dtypes, note)
        for (status, method, note), cases, sweeps, dtypes in shown.itertuples(name=None)
    ]
    fields = (
        Field("status", "text"),
        Field("method", "code"),
        Field("cases", "count"),
        Field("sweep", "text"),
        Field("dtype", "text"),
        Field("reason", "text"),
    )
    sentence = f"{plural(len(holes), 'case')} of {len(source.frame)} gave no numbers. No method stood in for another."
    return Section(
        "holes", "Holes", (sentence,), (Table(f"Every hole and its reason.{left_out}", fields, tuple(lines)),)
    )

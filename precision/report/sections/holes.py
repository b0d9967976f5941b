"""Section: the cases that gave no numbers, and why."""

from __future__ import annotations

from precision.report.blocks import Cell, Field, Section, Table
from precision.report.rows import groups_by, in_order
from precision.report.show import listed, plural
from precision.report.source import Source


def make_section(source: Source) -> Section | None:
    """Every hole, grouped by status, method and reason; None when there is none."""
    holes = source.frame[source.frame["status"] != "ok"]
    if holes.empty:
        return None
    lines: list[tuple[Cell, ...]] = []
    for (status, method, note), group in groups_by(holes, "status", "method", "note"):
        sweeps, dtypes = listed(in_order(group["sweep"], [])), listed(in_order(group["dtype"], []))
        lines.append((status, method, len(group), sweeps, dtypes, note))
    fields = (
        Field("status", "text"),
        Field("method", "code"),
        Field("cases", "count"),
        Field("sweep", "text"),
        Field("dtype", "text"),
        Field("reason", "text"),
    )
    sentence = f"{plural(len(holes), 'case')} of {len(source.frame)} gave no numbers. No method stood in for another."
    return Section("holes", "Holes", (sentence,), (Table("Every hole and its reason.", fields, tuple(lines)),))

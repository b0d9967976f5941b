"""Section: which of torch's attention operators each method ran."""

from __future__ import annotations

from precision.report.blocks import Cell, Field, Section, Table
from precision.report.rows import groups_by, in_order
from precision.report.show import listed
from precision.report.source import Source


def make_section(source: Source) -> Section | None:
    """Methods and operators as they were seen; None when no method ran one, as plain operations do not."""
    rows = source.rows[source.rows["ran"] != ""]
    if rows.empty:
        return None
    lines: list[tuple[Cell, ...]] = []
    for (method, operators), group in groups_by(rows, "method", "ran"):
        lines.append((method, operators, len(group), listed(in_order(group["dtype"], []))))
    fields = (Field("method", "code"), Field("operators", "code"), Field("cases", "count"), Field("dtype", "text"))
    open_choice = rows.groupby("method")["ran"].nunique()
    several = [str(method) for method, count in open_choice.items() if count > 1]
    sentence = (
        f"Torch chose between several kernels for {listed(several)}." if several else "Each method ran one kernel."
    )
    return Section("ran", "What ran", (sentence,), (Table("Seen in a profile of one call.", fields, tuple(lines)),))

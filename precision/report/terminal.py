"""The tables of a report that a run prints at its end: those that say `printed`."""

from __future__ import annotations

import pandas as pd

from precision.records.narrow import Narrow
from precision.records.show import render
from precision.records.table import say
from precision.report.blocks import Report, Table
from precision.report.show import show


def print_tables(report: Report) -> None:
    """Print every such table, in the order of the page and in its words."""
    for section in report.sections:
        for block in section.blocks:
            if isinstance(block, Table) and block.printed:
                print()
                say(f"{section.title}. {block.caption}")
                render(_shown(block), "table", _narrow(block))


def _shown(table: Table) -> pd.DataFrame:
    lines = [[show(cell, field.show) for cell, field in zip(row, table.fields, strict=True)] for row in table.rows]
    return pd.DataFrame(lines, columns=[field.header for field in table.fields])


def _narrow(table: Table) -> Narrow:
    above, marks, spare = (
        [field.header for field in table.fields if field.narrow == kind] for kind in ("above", "marks", "spare")
    )
    return Narrow(above=above, marks=marks, spare=spare)

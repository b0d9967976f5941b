"""Section: the rows themselves and what their columns mean."""

from __future__ import annotations

from precision.records.columns import COLUMNS, LATENCY_COLUMNS
from precision.report.blocks import Field, Link, Section, Table
from precision.report.show import plural
from precision.report.source import Source


def make_section(source: Source) -> Section:
    """Where the rows are and the table of their columns."""
    table = Table(
        "Columns of the rows.",
        (Field("column", "code"), Field("unit", "text"), Field("meaning", "text"), Field("better", "text")),
        tuple((column.name, column.unit, column.meaning, column.better) for column in (*COLUMNS, *LATENCY_COLUMNS)),
        collapsed=True,
    )
    config = Link(source.config_file, f"{source.config_file}: the configuration")
    rows = plural(len(source.frame), "row")
    if source.rows_csv is None:
        sentence = f"The run has {rows}, too many to lie beside this page: {source.export_command} writes them out."
        return Section("rows", "The rows", (sentence,), (config, table))
    link = Link("rows.csv", f"rows.csv: {rows}; an empty cell was not measured")
    return Section("rows", "The rows", (), (link, config, table))

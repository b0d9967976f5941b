"""Rows on a terminal or in a pipe."""

from __future__ import annotations

import sys

import pandas as pd
from rich.console import Console
from rich.table import Table
from rich.text import Text

from precision.errors import UsageError, nearest
from precision.markdown import escape

_SHOWN = (
    "status", "method", "inputs", "dtype", "scale", "q_len", "d_k",
    "out_max_abs", "out_median_ulp", "rows_nonfinite", "latency", "note",
)  # fmt: skip
# A terminal keeps no more, and drawing a line of a table costs a millisecond.
_MOST_LINES = 2000


def select(frame: pd.DataFrame, columns: str | None) -> pd.DataFrame:
    """The columns that were asked for, comma-separated; `all` for every one, None for those that people look at first.

    Raises UsageError on an unknown column.
    """
    if columns == "all":
        return frame
    names = list(_SHOWN) if columns is None else [name.strip() for name in columns.split(",")]
    for name in names:
        if name not in frame.columns:
            raise UsageError(f"there is no column {name!r}; {nearest(name, frame.columns)}")
    return frame[names]


def render(frame: pd.DataFrame, format: str) -> None:
    """Print a frame to stdout as a table, CSV, JSON records or Markdown; tables end after _MOST_LINES lines."""
    if format == "csv":
        frame.to_csv(sys.stdout, index=False)
    elif format == "json":
        frame.to_json(sys.stdout, orient="records", indent=2)
        print()
    else:
        shown = _readable(frame.iloc[:_MOST_LINES])
        if format == "markdown":
            print(shown.map(escape).to_markdown(index=False))
        else:
            _print_table(shown)
        if left_out := len(frame) - len(shown):
            print(f"and {left_out:,} more lines, which are not shown; `precision export` writes every row")


def _print_table(frame: pd.DataFrame) -> None:
    table = Table(header_style="bold")
    for name in frame.columns:
        table.add_column(Text(str(name)), overflow="fold")
    for cells in frame.itertuples(index=False):
        table.add_row(*(Text(cell) for cell in cells))
    # A pipe has no width to fit: the lines stay whole.
    Console(width=None if sys.stdout.isatty() else 10_000).print(table)


def _readable(frame: pd.DataFrame) -> pd.DataFrame:
    """Every cell as text: three digits, and nothing where nothing was measured."""
    return frame.map(lambda cell: "" if pd.isna(cell) else f"{cell:.3g}" if isinstance(cell, float) else str(cell))

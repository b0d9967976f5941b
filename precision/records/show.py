"""Rows on a terminal or in a pipe."""

from __future__ import annotations

import sys

import pandas as pd

from precision.errors import UsageError, nearest
from precision.markdown import escape
from precision.records.narrow import AS_IT_IS, Narrow
from precision.records.table import print_table

_SHOWN = (
    "status", "method", "inputs", "dtype", "scale", "q_len", "d_k",
    "out_max_abs", "out_median_ulp", "rows_nonfinite", "latency", "note",
)  # fmt: skip
_PROBLEM = ("inputs", "dtype", "scale", "mask", "q_len", "kv_len", "d_k")
ROWS = Narrow(above=_PROBLEM, below=("note",))  # rows of a run where a terminal is too narrow for all their columns
# A terminal keeps no more, and drawing a line of a table costs a millisecond.
_MOST_LINES = 2000


def select(frame: pd.DataFrame, columns: str | None) -> pd.DataFrame:
    """The columns that were asked for, comma-separated, each once; `all` for every one, None for those looked at first.

    Raises UsageError on an unknown column.
    """
    if columns == "all":
        return frame
    names = list(_SHOWN) if columns is None else list(dict.fromkeys(name.strip() for name in columns.split(",")))
    for name in names:
        if name not in frame.columns:
            raise UsageError(f"there is no column {name!r}; {nearest(name, frame.columns)}")
    return frame[names]


def render(frame: pd.DataFrame, format: str, narrow: Narrow = AS_IT_IS) -> None:
    """Print a frame to stdout as a table, CSV, JSON records or Markdown; tables end after _MOST_LINES lines.

    `narrow` says what a table becomes on a terminal that has no room for all its columns.
    """
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
            print_table(shown, narrow)
        if left_out := len(frame) - len(shown):
            print(f"and {left_out:,} more lines, which are not shown; `precision export` writes every row")


def _readable(frame: pd.DataFrame) -> pd.DataFrame:
    """Every cell as text: three digits, and nothing where nothing was measured."""
    return frame.map(lambda cell: "" if pd.isna(cell) else f"{cell:.3g}" if isinstance(cell, float) else str(cell))

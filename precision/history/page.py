"""A history as a page: the verdict, the figure and the largest changes."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from precision.history.follow import History
from precision.history.plot import HOW_TO_READ, draw_history
from precision.markdown import escape
from precision.report.folder import write_files
from precision.report.show import number

_PAGE = """# Error and latency over commits

{verdict}

![One line for each benchmark over commits](history.svg)

{how_to_read}

## Largest changes

From the oldest commit to the newest; `change` is a factor, or for non-finite counts a difference.

{changes}

Every figure: [history.csv](history.csv).
"""


def write_history(history: History, out: Path) -> Path:
    """Write history.md with its figure history.svg and all figures in history.csv (report/folder.py); give the page.

    Raises UsageError when the folder cannot be written or another file is in the way.
    """
    files = {
        "history.md": _render(history),
        "history.svg": draw_history(history.frame, history.breaches),
        "history.csv": history.frame.to_csv(index=False, lineterminator="\n"),
    }
    write_files(out, files)
    return out / "history.md"


def _render(history: History) -> str:
    return _PAGE.format(
        verdict="\n".join(f"- {escape(sentence)}" for sentence in history.sentences),
        how_to_read=HOW_TO_READ,
        changes=history.changes.map(_cell).to_markdown(index=False),
    )


def _cell(value: object) -> str:
    if isinstance(value, float):
        return "" if pd.isna(value) else number(value)
    return escape(str(value))

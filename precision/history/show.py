"""A history on a terminal: what was read, what moved, and the answer."""

from __future__ import annotations

from precision.history.follow import History
from precision.records.narrow import Narrow
from precision.records.show import render as render_frame
from precision.records.table import say


def render(history: History) -> None:
    """Print each source, the series that moved most, and one line a breach."""
    for looked in history.looked:
        say(str(looked), indent="  ")
    if not history.changes.empty:
        print()
        render_frame(history.changes, "table", Narrow(spare=("commits", "torch", "machine", "source")))
        print()
    for sentence in history.sentences:
        say(sentence, indent="  ")

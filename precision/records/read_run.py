"""A run by the words that name it on the command line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from precision.records.run_record import RunRecord
from precision.records.store import Store

if TYPE_CHECKING:
    import pandas as pd


def read_run(text: str, store: Path) -> tuple[RunRecord, pd.DataFrame]:
    """The run that `3`, `other.sqlite` (its newest) or `other.sqlite:3` names; a bare number is looked up in `store`.

    Raises UsageError when there is no such run.
    """
    file, _, number = text.rpartition(":") if not text.isdecimal() else ("", "", text)
    if not number.isdecimal():
        file, number = text, ""
    with Store(Path(file) if file else store, create=False) as kept:
        record = kept.runs.find(int(number) if number else None)
        return record, kept.rows.frame(record.id)

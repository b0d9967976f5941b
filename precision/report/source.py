"""What the sections read: the record of the run, every row, and the measured ones."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pandas as pd

from precision.records.run_record import RunRecord
from precision.records.store import DEFAULT_STORE
from precision.report.rows import measured_rows

_LARGEST_CSV = 5 * 2**20  # bytes, but for characters beyond ASCII


def folder_of(record: RunRecord) -> str:
    """The run's name as the name of a folder or a file: no path leads out of it, whatever the store says."""
    return re.sub(r"[^\w.-]+", "-", record.name).strip(".-") or "run"


@dataclass(frozen=True)
class Source:
    """A run. `frame` is the store's, holes included; `rows` are the measured ones (see rows.py)."""

    record: RunRecord
    frame: pd.DataFrame
    store: Path = DEFAULT_STORE  # where the rows are kept, for the command that exports them

    @cached_property
    def rows(self) -> pd.DataFrame:
        """One line a measured case; those of the zoo, hard on purpose, have a section of their own and are left out."""
        return measured_rows(self.frame[~self.frame["inputs"].str.startswith("zoo/")])

    @cached_property
    def methods(self) -> list[str]:
        """Every method that was measured, in the order of the run; figures give each the same colour throughout."""
        return list(dict.fromkeys(self.rows["method"]))

    @cached_property
    def rows_csv(self) -> str | None:
        """The rows as CSV; None where that is more than a folder of reports should hold."""
        if self.frame.size > _LARGEST_CSV:  # a cell is one character at least
            return None
        text = self.frame.to_csv(index=False, lineterminator="\n")
        return text if len(text) <= _LARGEST_CSV else None

    @property
    def export_command(self) -> str:
        """What writes every row of the run to a file."""
        store = "" if self.store == DEFAULT_STORE else f" --store {shlex.quote(str(self.store))}"
        return f"precision export rows.parquet --run {self.record.id}{store}"

    @property
    def config_file(self) -> str:
        """The file beside the report that holds the run's configuration."""
        return f"{folder_of(self.record)}.toml"

    @property
    def command(self) -> str:
        """What makes the whole report again, in the folder of the report."""
        return f"precision run {shlex.quote(self.config_file)}"

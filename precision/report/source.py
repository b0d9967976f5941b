"""What the sections read: the record of the run, every row, and the measured ones."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from functools import cached_property

import pandas as pd

from precision.records.store import RunRecord
from precision.report.rows import measured_rows


@dataclass(frozen=True)
class Source:
    """A run. `frame` is the store's, holes included; `rows` are the measured ones (see rows.py)."""

    record: RunRecord
    frame: pd.DataFrame

    @cached_property
    def rows(self) -> pd.DataFrame:
        """One line a measured case; those of the zoo, hard on purpose, have a section of their own and are left out."""
        return measured_rows(self.frame[~self.frame["inputs"].str.startswith("zoo/")])

    @cached_property
    def methods(self) -> list[str]:
        """Every method that was measured, in the order of the run; figures give each the same colour throughout."""
        return list(dict.fromkeys(self.rows["method"]))

    @property
    def config_file(self) -> str:
        """The file beside the report that holds the run's configuration."""
        return f"{self.record.name or 'run'}.toml"

    @property
    def command(self) -> str:
        """What makes the whole report again, in the folder of the report."""
        return f"precision run {shlex.quote(self.config_file)}"

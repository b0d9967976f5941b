"""Row: what measuring one case gave, and the rule that ties its status to what it may hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from precision.records.columns import BY_NAME, COLUMNS

_MEASURED = {column.name for column in COLUMNS if column.group != "identity"}
Cell = str | int | float | bool | None


class Status(StrEnum):
    """How a case ended. Everything but `ok` is a hole with a reason."""

    OK = "ok"
    REFUSED = "refused"  # the method cannot do this problem
    ABSENT = "absent"  # the method is not on this machine
    RAISED = "raised"  # the method failed with an exception
    TIMEOUT = "timeout"  # the method did not end in time
    CRASHED = "crashed"  # the method took its process down


@dataclass(frozen=True)
class Row:
    """Cells by column name; a column that is not there was not measured.

    Raises ValueError on an unknown column, and when status, note and measured columns contradict each other.
    """

    cells: Mapping[str, Cell]

    def __post_init__(self) -> None:
        if unknown := self.cells.keys() - BY_NAME.keys():
            raise ValueError(f"no such column: {', '.join(sorted(unknown))}")
        measured = self.cells.keys() & _MEASURED
        if self.status is Status.OK and "rows" not in measured:
            raise ValueError("a row with status ok needs its incidence")
        if self.status is not Status.OK and (measured or not self.cells.get("note")):
            raise ValueError(f"a row with status {self.status} has a note that says why, and nothing measured")

    @property
    def status(self) -> Status:
        """How the case ended."""
        return Status(str(self.cells["status"]))

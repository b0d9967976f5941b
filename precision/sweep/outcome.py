"""How what a method raised becomes a row."""

from __future__ import annotations

from collections.abc import Mapping

from precision.backends.backend import Absent, Refused
from precision.records.row import Cell, Row, Status
from precision.sweep.identity import hole


def hole_of(cells: Mapping[str, Cell], error: BaseException) -> Row:
    """A row of the identity among the cells, with the status and the reason that the exception stands for."""
    reason = str(error).strip() or "no reason was given"
    if isinstance(error, Absent):
        return hole(cells, Status.ABSENT, reason)
    if isinstance(error, Refused | NotImplementedError):
        return hole(cells, Status.REFUSED, reason)
    return hole(cells, Status.RAISED, f"{type(error).__name__}: {reason}")

"""The table of rows: one line a case of a run."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from precision.records.columns import COLUMNS
from precision.records.database import Database
from precision.records.fingerprint import fingerprint
from precision.records.row import Row, Status
from precision.records.transaction import transaction

if TYPE_CHECKING:
    import pandas as pd

_NAMES = [column.name for column in COLUMNS]
_COLUMNS = ", ".join(f'"{name}"' for name in _NAMES)  # quoted: `case` is a word of SQL
_SAMPLES = ("latency_samples", "backward_latency_samples")
# The keys are one parameter, for SQLite limits how many there are. The table has an index by run and case.
_OF_CASES = f"""
SELECT {_COLUMNS} FROM rows
WHERE run = ? AND "case" IN (SELECT value FROM json_each(?)) AND status IN (?, ?)
"""


class Rows:
    """The rows of a store. Every method raises UsageError when the file cannot be used."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, run: int, rows: Mapping[int, Row]) -> None:
        """Keep rows by their place in the plan, all of them or none; they are on disk when this returns."""
        with self._database.use() as db, transaction(db):
            for place, row in rows.items():
                names = ", ".join(f'"{name}"' for name in row.cells)
                values = ", ".join("?" for _ in row.cells)
                db.execute(
                    f"INSERT OR REPLACE INTO rows (run, place, {names}) VALUES (?, ?, {values})",
                    (run, place, *row.cells.values()),
                )

    def kept(self, run: int) -> dict[tuple[str, str], str]:
        """By sweep and case, the revision of the method (of a user's own kernel) of every row that the run has."""
        with self._database.use() as db:
            found = db.execute('SELECT sweep, "case", revision FROM rows WHERE run = ?', (run,))
            return {(cells["sweep"], cells["case"]): cells["revision"] or "" for cells in found}

    def known(self, cases: Collection[str], code: str, environment: Mapping[str, Any]) -> dict[str, Row]:
        """Of these cases, by key, the newest row that the code measured in the environment, without latency samples.

        Only what was measured or refused is known: what was absent may be here now, and what failed may not fail again.
        """
        rows: dict[str, Row] = {}
        with self._database.use() as db:
            runs = db.execute(
                "SELECT id FROM runs WHERE (code, fingerprint) = (?, ?) ORDER BY id DESC",
                (code, fingerprint(environment)),
            )
            for (run,) in runs:
                if not (unknown := [case for case in cases if case not in rows]):
                    break
                found = db.execute(_OF_CASES, (run, json.dumps(unknown), Status.OK, Status.REFUSED))
                rows |= {cells["case"]: _read_row(cells) for cells in found}
        return rows

    def frame(self, run: int) -> pd.DataFrame:
        """The rows of a run in the order of its plan, latency statistics included."""
        from precision.records.frame import make_frame

        with self._database.use() as db:
            records = db.execute(f"SELECT {_COLUMNS} FROM rows WHERE run = ? ORDER BY place, rowid", (run,)).fetchall()
        return make_frame([tuple(record) for record in records])


def _read_row(cells: sqlite3.Row) -> Row:
    named = zip(_NAMES, cells, strict=True)  # by place: a sqlite3.Row searches its columns for a name
    return Row({name: cell for name, cell in named if cell is not None and name not in _SAMPLES})

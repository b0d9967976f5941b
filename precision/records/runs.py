"""The table of runs: one line a run, with where it came from and how it ended."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from precision.errors import UsageError
from precision.records.database import Database
from precision.records.fingerprint import fingerprint
from precision.records.run_record import RunRecord, read_record


class Runs:
    """The runs of a store. Every method raises UsageError when the file cannot be used."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def begin(self, name: str, title: str, config: str, code: str, environment: Mapping[str, Any]) -> int:
        """Note the start of a run and give its number."""
        with self._database.use() as db:
            cursor = db.execute(
                "INSERT INTO runs (name, title, config, code, environment, fingerprint, started)"
                " VALUES (?, ?, ?, ?, ?, ?, ?)",
                (name, title, config, code, json.dumps(environment), fingerprint(environment), _now()),
            )
            assert cursor.lastrowid is not None
            return cursor.lastrowid

    def finish(self, run: int, seconds: Mapping[str, float]) -> None:
        """Note the end of a run and where its time went."""
        with self._database.use() as db:
            db.execute("UPDATE runs SET finished = ?, seconds = ? WHERE id = ?", (_now(), json.dumps(seconds), run))

    def unfinished(self, name: str, config: str, code: str, environment: Mapping[str, Any]) -> list[int]:
        """Runs of the same that have not been finished, the newest first: stopped, or still under way."""
        with self._database.use() as db:
            found = db.execute(
                "SELECT id FROM runs WHERE finished IS NULL AND (name, config, code, fingerprint) = (?, ?, ?, ?)"
                " ORDER BY id DESC",
                (name, config, code, fingerprint(environment)),
            )
            return [cells["id"] for cells in found]

    def all(self) -> list[RunRecord]:
        """Every run, the oldest first."""
        with self._database.use() as db:
            return [read_record(cells) for cells in db.execute("SELECT * FROM runs ORDER BY id")]

    def find(self, run: int | None = None) -> RunRecord:
        """The run of that number, or the newest; raises UsageError when there is none."""
        runs = self.all()
        store = str(self._database.path)
        if not runs:
            raise UsageError(f"the store {store!r} holds no run; run `precision run` first")
        if run is None:
            return runs[-1]
        for record in runs:
            if record.id == run:
                return record
        newest = ", ".join(f"{record.id} ({record.name})" for record in runs[-5:])
        raise UsageError(f"there is no run {run} in {store!r}; the newest are {newest}")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")

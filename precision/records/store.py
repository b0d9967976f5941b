"""The store: one SQLite file that keeps every row as soon as it is measured."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from precision.errors import UsageError
from precision.problem import digest_of
from precision.records.columns import COLUMNS
from precision.records.row import Cell, Row, Status

if TYPE_CHECKING:
    import pandas as pd

DEFAULT_STORE = Path(".precision") / "store.sqlite"

# Raised when an older version of the package could misread what this one writes. New columns do not raise it.
_SCHEMA_VERSION = 1
_APPLICATION_ID = 0x41545052  # "ATPR", which tells our file from any other SQLite file
_SQL_TYPES = {str: "TEXT", int: "INTEGER", float: "REAL", bool: "INTEGER"}
_NAMES = [f'"{column.name}"' for column in COLUMNS]  # quoted: `case` is a word of SQL


@dataclass(frozen=True)
class RunRecord:
    """What the store knows of a run beside its rows; `finished` and `seconds` are empty while it is under way."""

    id: int
    name: str
    title: str
    config: str
    code: str
    environment: Mapping[str, Any]
    started: str
    finished: str | None
    seconds: Mapping[str, float]


class Store:
    """Runs and their rows in a SQLite file (WAL mode, one transaction a row).

    Raises UsageError when the file cannot be used: not a store, written by a newer version, read-only, disk full.
    """

    def __init__(self, path: Path, *, create: bool = True) -> None:
        self.path = path
        if not create and not path.is_file():
            raise UsageError(f"there is no store at {str(path)!r}; run `precision run` first, or name one with --store")
        with self._mending():
            path.parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(path, timeout=30, isolation_level=None)
            self._db.row_factory = sqlite3.Row
            self._claim()

    def close(self) -> None:
        """Close the file; the store cannot be used afterwards."""
        self._db.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def begin_run(self, name: str, title: str, config: str, code: str, environment: Mapping[str, Any]) -> int:
        """Note the start of a run and give its number."""
        with self._mending():
            cursor = self._db.execute(
                "INSERT INTO runs (name, title, config, code, environment, fingerprint, started)"
                " VALUES (?, ?, ?, ?, ?, ?, ?)",
                (name, title, config, code, json.dumps(environment), fingerprint(environment), _now()),
            )
            assert cursor.lastrowid is not None
            return cursor.lastrowid

    def add(self, run: int, row: Row) -> None:
        """Keep a row; it is on disk when this returns."""
        names = ", ".join(f'"{name}"' for name in row.cells)
        places = ", ".join("?" for _ in row.cells)
        with self._mending():
            self._db.execute(
                f"INSERT OR REPLACE INTO rows (run, {names}) VALUES (?, {places})",
                (run, *row.cells.values()),
            )

    def finish_run(self, run: int, seconds: Mapping[str, float]) -> None:
        """Note the end of a run and where its time went."""
        with self._mending():
            self._db.execute(
                "UPDATE runs SET finished = ?, seconds = ? WHERE id = ?", (_now(), json.dumps(seconds), run)
            )

    def known_rows(self, code: str, environment: Mapping[str, Any]) -> dict[str, Row]:
        """The newest row of every case that this code measured in this environment, without its latency samples.

        Only what was measured or refused is known: what was absent may be here now, and what failed may not fail again.
        """
        with self._mending():
            found = self._db.execute(
                f"SELECT {', '.join('rows.' + name for name in _NAMES)} FROM rows JOIN runs ON runs.id = rows.run"
                " WHERE runs.code = ? AND runs.fingerprint = ? AND rows.status IN (?, ?) ORDER BY runs.id",
                (code, fingerprint(environment), Status.OK, Status.REFUSED),
            ).fetchall()
        rows: dict[str, Row] = {}
        for record in found:
            cells: dict[str, Cell] = {key: record[key] for key in record.keys() if record[key] is not None}  # noqa: SIM118
            for samples in ("latency_samples", "backward_latency_samples"):
                cells.pop(samples, None)
            rows[record["case"]] = Row(cells)
        return rows

    def runs(self) -> list[RunRecord]:
        """Every run, the oldest first."""
        with self._mending():
            return [_run_record(record) for record in self._db.execute("SELECT * FROM runs ORDER BY id")]

    def find_run(self, run: int | None = None) -> RunRecord:
        """The run of that number, or the newest; raises UsageError when there is none."""
        runs = self.runs()
        if not runs:
            raise UsageError(f"the store {str(self.path)!r} holds no run; run `precision run` first")
        if run is None:
            return runs[-1]
        for record in runs:
            if record.id == run:
                return record
        known = ", ".join(f"{record.id} ({record.name})" for record in runs[-5:])
        raise UsageError(f"there is no run {run} in {str(self.path)!r}; the newest are {known}")

    def frame(self, run: int) -> pd.DataFrame:
        """The rows of a run in the order they were measured, latency statistics included."""
        from precision.records.frame import make_frame

        with self._mending():
            records = self._db.execute(
                f"SELECT {', '.join(_NAMES)} FROM rows WHERE run = ? ORDER BY rowid", (run,)
            ).fetchall()
        return make_frame([tuple(record) for record in records])

    def _claim(self) -> None:
        """Make the tables in a new file, add columns that came later, and refuse a file that is not ours."""
        application = self._db.execute("PRAGMA application_id").fetchone()[0]
        version = self._db.execute("PRAGMA user_version").fetchone()[0]
        tables = self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if tables and application != _APPLICATION_ID:
            raise UsageError(f"{str(self.path)!r} is a database of another program; name another file with --store")
        if version > _SCHEMA_VERSION:
            raise UsageError(
                f"{str(self.path)!r} was written by a newer attention-precision; upgrade, or name another with --store"
            )
        if not tables:
            self._db.execute("PRAGMA journal_mode = WAL")
            columns = ", ".join(f'"{column.name}" {_SQL_TYPES[column.type]}' for column in COLUMNS)
            self._db.executescript(
                f"""
                BEGIN IMMEDIATE;
                CREATE TABLE IF NOT EXISTS runs (
                    id INTEGER PRIMARY KEY, name TEXT, title TEXT, config TEXT, code TEXT, environment TEXT,
                    fingerprint TEXT, started TEXT, finished TEXT, seconds TEXT
                );
                CREATE TABLE IF NOT EXISTS rows (run INTEGER REFERENCES runs, {columns}, UNIQUE (run, "case", sweep));
                PRAGMA application_id = {_APPLICATION_ID};
                PRAGMA user_version = {_SCHEMA_VERSION};
                COMMIT;
                """
            )
        present = {record["name"] for record in self._db.execute("PRAGMA table_info(rows)")}
        for column in COLUMNS:
            if column.name not in present:
                self._db.execute(f"ALTER TABLE rows ADD COLUMN {column.name} {_SQL_TYPES[column.type]}")

    @contextmanager
    def _mending(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise UsageError(
                f"the store {str(self.path)!r} cannot be used: {error}; name another file with --store"
            ) from error


def read_run(text: str, store: Path) -> tuple[RunRecord, pd.DataFrame]:
    """The run that `3`, `other.sqlite` (its newest) or `other.sqlite:3` names; a bare number is looked up in `store`.

    Raises UsageError when there is no such run.
    """
    file, _, number = text.rpartition(":") if not text.isdecimal() else ("", "", text)
    if not number.isdecimal():
        file, number = text, ""
    with Store(Path(file) if file else store, create=False) as kept:
        record = kept.find_run(int(number) if number else None)
        return record, kept.frame(record.id)


def fingerprint(environment: Mapping[str, Any]) -> str:
    """What two environments share when their rows may be pooled."""
    return digest_of(dict(environment))


def _run_record(record: sqlite3.Row) -> RunRecord:
    return RunRecord(
        id=record["id"],
        name=record["name"],
        title=record["title"],
        config=record["config"],
        code=record["code"],
        environment=json.loads(record["environment"]),
        started=record["started"],
        finished=record["finished"],
        seconds=json.loads(record["seconds"] or "{}"),
    )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")

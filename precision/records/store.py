"""The store: one SQLite file that keeps every row as soon as it is measured."""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from precision.errors import UsageError
from precision.problem import digest_of
from precision.records.columns import COLUMNS
from precision.records.row import Cell, Row, Status
from precision.records.schema import claim

if TYPE_CHECKING:
    import pandas as pd

DEFAULT_STORE = Path(".precision") / "store.sqlite"

_NAMES = [f'"{column.name}"' for column in COLUMNS]  # quoted: `case` is a word of SQL


@dataclass(frozen=True)
class RunRecord:
    """What the store knows of a run beside its rows; `finished` and `seconds` are empty while it is under way.

    `seconds`: by part of the work, where the time went; in a run that was stopped, that of its last part.
    """

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
            claim(self._db, path, create=create)

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

    def add(self, run: int, row: Row, place: int = 0) -> None:
        """Keep a row; it is on disk when this returns. Rows are read in the order of their places."""
        self.add_together(run, {place: row})

    def add_together(self, run: int, rows: Mapping[int, Row]) -> None:
        """Keep rows by place, all of them or none."""
        with self._mending():
            self._db.execute("SAVEPOINT together")
            try:
                for place, row in rows.items():
                    names = ", ".join(f'"{name}"' for name in row.cells)
                    values = ", ".join("?" for _ in row.cells)
                    self._db.execute(
                        f"INSERT OR REPLACE INTO rows (run, place, {names}) VALUES (?, ?, {values})",
                        (run, place, *row.cells.values()),
                    )
                self._db.execute("RELEASE together")
            except BaseException:
                with suppress(sqlite3.Error):  # SQLite may have done so by itself
                    self._db.execute("ROLLBACK TO together")
                    self._db.execute("RELEASE together")
                raise

    def finish_run(self, run: int, seconds: Mapping[str, float]) -> None:
        """Note the end of a run and where its time went."""
        with self._mending():
            self._db.execute(
                "UPDATE runs SET finished = ?, seconds = ? WHERE id = ?", (_now(), json.dumps(seconds), run)
            )

    def unfinished_runs(self, name: str, config: str, code: str, environment: Mapping[str, Any]) -> list[int]:
        """Runs of the same that have not been finished, the newest first: stopped, or still under way."""
        with self._mending():
            found = self._db.execute(
                "SELECT id FROM runs WHERE finished IS NULL AND (name, config, code, fingerprint) = (?, ?, ?, ?)"
                " ORDER BY id DESC",
                (name, config, code, fingerprint(environment)),
            )
            return [record["id"] for record in found]

    def kept_cases(self, run: int) -> dict[tuple[str, str], str]:
        """By sweep and case, the revision of the method (of a user's own kernel) of every row that the run has."""
        with self._mending():
            found = self._db.execute('SELECT sweep, "case", revision FROM rows WHERE run = ?', (run,))
            return {(record["sweep"], record["case"]): record["revision"] or "" for record in found}

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
        """The rows of a run in the order of its plan, latency statistics included."""
        from precision.records.frame import make_frame

        with self._mending():
            records = self._db.execute(
                f"SELECT {', '.join(_NAMES)} FROM rows WHERE run = ? ORDER BY place, rowid", (run,)
            ).fetchall()
        return make_frame([tuple(record) for record in records])

    @contextmanager
    def _mending(self) -> Iterator[None]:
        try:
            yield
        except UsageError:
            raise
        except (sqlite3.Error, OSError, ValueError) as error:  # ValueError: text that is no JSON
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
    """Raises ValueError when a cell holds what was never written there."""
    try:
        run = _as_run(record)
        datetime.fromisoformat(run.started)
        sound = all(isinstance(text, str) for text in (run.name, run.title, run.config, run.code))
        sound &= isinstance(run.environment, dict) and all(map(math.isfinite, run.seconds.values()))
    except (AttributeError, IndexError, RecursionError, TypeError, ValueError):
        sound = False
    if not sound:
        raise ValueError(f"run {record['id']} is damaged")
    return run


def _as_run(record: sqlite3.Row) -> RunRecord:
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

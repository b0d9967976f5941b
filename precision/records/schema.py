"""The tables of a store: made in a new file, extended in an older one, and told from any other file."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock

from precision.errors import UsageError
from precision.records.columns import COLUMNS
from precision.records.transaction import transaction

_PATIENCE = 30  # seconds
# Raised when an older version of the package could misread what this one writes. New columns do not raise it.
_SCHEMA_VERSION = 1
_APPLICATION_ID = 0x41545052  # "ATPR", which tells our file from any other SQLite file
_SQL_TYPES = {str: "TEXT", int: "INTEGER", float: "REAL", bool: "INTEGER"}
# Beside the cells: the run, and the row's place in its plan. Quoted, for `case` is a word of SQL.
_COLUMNS = {
    '"place"': "INTEGER",
    **{f'"{column.name}"': _SQL_TYPES[column.type] for column in COLUMNS},
}


def claim(db: sqlite3.Connection, path: Path, *, create: bool) -> None:
    """Make the file ours when it is new, and add columns that came later; others may do the same at the same time.

    Raises UsageError on a file that is not ours or that a newer version wrote, and on an empty one unless `create`.
    """
    if _is_new(db, path):
        if not create:
            raise UsageError(f"the store {str(path)!r} holds no run; run `precision run` first")
        with _alone(path):
            if _is_new(db, path):
                db.execute("PRAGMA journal_mode = WAL")
                _make_tables(db)
    if _missing_columns(db):
        with transaction(db):
            for name in _missing_columns(db):
                db.execute(f"ALTER TABLE rows ADD COLUMN {name} {_COLUMNS[name]}")


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """One process after the other: SQLite lets nobody wait for the switch to WAL. The file is of no use afterwards."""
    file = path.with_name(f"{path.name}-new.lock")
    with FileLock(file, timeout=_PATIENCE):
        yield
        file.unlink(missing_ok=True)


def _is_new(db: sqlite3.Connection, path: Path) -> bool:
    db.execute("BEGIN")  # so that the three agree while another process makes the tables
    application, version, tables = (
        db.execute(query).fetchone()[0]
        for query in ("PRAGMA application_id", "PRAGMA user_version", "SELECT count(*) FROM sqlite_master")
    )
    db.execute("COMMIT")
    if application != _APPLICATION_ID and (tables or application):
        raise UsageError(f"{str(path)!r} is a database of another program; name another file with --store")
    if version > _SCHEMA_VERSION:
        raise UsageError(
            f"{str(path)!r} was written by a newer attention-precision; upgrade, or name another with --store"
        )
    return not tables


def _make_tables(db: sqlite3.Connection) -> None:
    columns = ", ".join(f"{name} {type_}" for name, type_ in _COLUMNS.items())
    with transaction(db):
        db.execute(
            "CREATE TABLE IF NOT EXISTS runs (id INTEGER PRIMARY KEY, name TEXT, title TEXT, config TEXT, code TEXT,"
            " environment TEXT, fingerprint TEXT, started TEXT, finished TEXT, seconds TEXT)"
        )
        db.execute(
            f'CREATE TABLE IF NOT EXISTS rows (run INTEGER REFERENCES runs, {columns}, UNIQUE (run, "case", sweep))'
        )
        db.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
        db.execute(f"PRAGMA user_version = {_SCHEMA_VERSION}")


def _missing_columns(db: sqlite3.Connection) -> list[str]:
    present = {f'"{record["name"]}"' for record in db.execute("PRAGMA table_info(rows)")}
    return [name for name in _COLUMNS if name not in present]

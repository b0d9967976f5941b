"""The store: one SQLite file that keeps every run, and every row as soon as it is measured."""

from __future__ import annotations

from pathlib import Path

from precision.records.database import Database
from precision.records.rows import Rows
from precision.records.runs import Runs

DEFAULT_STORE = Path(".precision") / "store.sqlite"


class Store:
    """`runs` and their `rows` in one file, which is made when it is not there and `create`.

    Raises UsageError when the file cannot be used: not a store, written by a newer version, read-only, disk full.
    """

    def __init__(self, path: Path, *, create: bool = True) -> None:
        self.path = path
        self._database = Database(path, create=create)
        self.runs = Runs(self._database)
        self.rows = Rows(self._database)

    def close(self) -> None:
        """Close the file; the store cannot be used afterwards."""
        self._database.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

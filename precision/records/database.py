"""The file of a store, open; what goes wrong with it is one sentence."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from precision.errors import UsageError
from precision.records.schema import claim

_PATIENCE = 30  # seconds that another writer is waited for


class Database:
    """A SQLite file (WAL mode) with the tables of a store, made when it is new and `create`.

    Raises UsageError when the file cannot be used: not there, not a store, written by a newer version, read-only.
    """

    def __init__(self, path: Path, *, create: bool) -> None:
        self.path = path
        if not create and not path.is_file():
            raise UsageError(f"there is no store at {str(path)!r}; run `precision run` first, or name one with --store")
        with self._mending():
            path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(path, timeout=_PATIENCE, isolation_level=None)
            self._connection.row_factory = sqlite3.Row
            claim(self._connection, path, create=create)

    def close(self) -> None:
        """Close the file, which cannot be used afterwards."""
        self._connection.close()

    @contextmanager
    def use(self) -> Iterator[sqlite3.Connection]:
        """The connection, for as long as the context lasts.

        An error of SQLite, of the disk or of what a cell holds ends it with a UsageError that names the file.
        """
        with self._mending():
            yield self._connection

    @contextmanager
    def _mending(self) -> Iterator[None]:
        try:
            yield
        except UsageError:
            raise
        except (sqlite3.Error, OSError, ValueError) as error:  # ValueError: a cell that was never written so
            raise UsageError(
                f"the store {str(self.path)!r} cannot be used: {error}; name another file with --store"
            ) from error

"""A run that is being written: begun anew, or one of the same that was stopped and goes on."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from precision.errors import UsageError
from precision.records.row import Row
from precision.records.run_lock import RunLock
from precision.records.store import Store


class RunWriter:
    """The rows of one run, which no other process writes at the same time.

    `number` is the run's in the store; `kept` has, by sweep and case, the revision of every row that it has already.
    Raises UsageError when the store cannot be used.
    """

    def __init__(
        self,
        store: Store,
        name: str,
        title: str,
        config: str,
        code: str,
        environment: Mapping[str, Any],
        *,
        fresh: bool,
    ) -> None:
        self._store = store
        self._finished = False
        candidates = itertools.chain(
            [] if fresh else store.runs.unfinished(name, config, code, environment),
            # More than one, for another process may take a run that has just begun for one that was stopped.
            (store.runs.begin(name, title, config, code, environment) for _ in itertools.count()),
        )
        self.number = next(filter(self._take, candidates))
        self.kept = store.rows.kept(self.number)

    def __enter__(self) -> RunWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.release(remove=self._finished)

    def add(self, rows: Mapping[int, Row]) -> None:
        """Keep rows by their place in the plan, all of them or none; they are on disk when this returns."""
        self._store.rows.add(self.number, rows)

    def finish(self, seconds: Mapping[str, float]) -> None:
        """Note the end of the run and where its time went."""
        self._store.runs.finish(self.number, seconds)
        self._finished = True

    def _take(self, run: int) -> bool:
        """Whether this process is now the only one that writes the run, which is not finished yet."""
        lock = RunLock(self._store.path, run)
        try:
            if not lock.acquire():
                return False
        except OSError as error:
            raise UsageError(
                f"no file can be locked beside {str(self._store.path)!r}: {error}; name another store with --store"
            ) from error
        if self._store.runs.find(run).finished is not None:
            lock.release(remove=True)
            return False
        self._lock = lock
        return True

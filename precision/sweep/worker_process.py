"""A worker process, whatever it is asked to do; how it ended is an exception with a sentence."""

from __future__ import annotations

import os
import re
import signal
import tempfile
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, TimeoutError
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import Connection
from threading import Thread
from typing import Any

from pebble import ProcessExpired, ProcessPool

from precision.records.row import Status
from precision.sweep import worker
from precision.sweep.processes import PROCESSES

_LONGEST_WORDS = 200
_TRACE = re.compile(r"@ +0x|\*\*\* ")  # as libraries of Google write it below the reason
# Seconds that an ending worker is waited for. One that is still importing torch ends after its parent.
_PATIENCE = 0.5


class Lost(Exception):
    """The worker did not live to answer; the message says why."""

    def __init__(self, status: Status, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class WorkerProcess:
    """A process that calls functions, and is started anew when one took it down. Close it at the end."""

    def __init__(self, settings: worker.Settings) -> None:
        self._settings = settings
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  # as long as the workers
        self._pool = self._start()
        self._future: Future[Any] | None = None
        self._closed = False

    def close(self) -> None:
        """End the process at once. A call that waits for it in another thread raises CancelledError."""
        if self._closed:
            return
        self._closed = True
        self._end()
        if self._future is not None:
            self._future.cancel()
        self._errors.close()

    def run(self, function: Callable[..., Any], *arguments: Any, limit: float | None = None) -> Any:
        """What the function gives or raises there.

        Raises Lost when the process ended or when `limit` seconds went by, and CancelledError once it is closed.
        """
        if self._closed:
            raise CancelledError
        if not self._pool.active:  # the process ended while nothing was asked of it
            self._end()
            self._pool = self._start()
        self._errors.seek(0)  # the worker writes to the same description of the file, and so from here
        self._errors.truncate()
        self._future = self._pool.schedule(function, arguments, timeout=limit)
        try:
            return self._future.result()
        except TimeoutError:
            raise Lost(Status.TIMEOUT, f"it did not end within {limit:g} s") from None
        except ProcessExpired as error:
            raise Lost(Status.CRASHED, self._why(error.exitcode)) from None
        except BrokenProcessPool:
            raise Lost(Status.CRASHED, self._why(None)) from None

    def _start(self) -> ProcessPool:
        errors = Connection(os.dup(self._errors.fileno()), readable=False)  # which can be handed to a process
        return ProcessPool(1, initializer=worker.start, initargs=(self._settings, errors), context=PROCESSES)

    def _end(self) -> None:
        self._pool.stop()  # type: ignore[no-untyped-call]
        ending = Thread(target=self._pool.join, daemon=True)
        ending.start()
        ending.join(_PATIENCE)

    def _why(self, code: int | None) -> str:
        """How the process ended, and the last line that it wrote to stderr, but for a trace of the stack."""
        if code is None:
            how = "its process ended"
        elif code < 0:
            how = f"its process was killed by {signal.Signals(-code).name}"
        else:
            how = f"its process ended with exit status {code}"
        self._errors.seek(0)
        lines = [line.strip() for line in self._errors.read().decode(errors="replace").split("\n")]
        words = next((line for line in reversed(lines) if line and not _TRACE.match(line)), "")
        return f"{how}: {words[:_LONGEST_WORDS]}" if words else how

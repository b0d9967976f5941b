"""A bench in a process of its own: a kernel that crashes, hangs or runs out of memory becomes a row like any other."""

from __future__ import annotations

import os
import platform
import signal
import tempfile
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, TimeoutError
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from multiprocessing.connection import Connection
from threading import Thread
from typing import Any

from pebble import ProcessExpired, ProcessPool

from precision.errors import UsageError
from precision.problem import Problem
from precision.records.row import Cell, Row, Status
from precision.sweep import worker
from precision.sweep.config import Config
from precision.sweep.identity import hole, identity_of
from precision.sweep.measurer import Measurer
from precision.sweep.processes import PROCESSES
from precision.sweep.stopwatch import Stopwatch
from precision.sweep.task import Plan, Task

_LONGEST_WORDS = 200
# Seconds that an ending worker is waited for. One that is still importing torch ends after its parent.
_PATIENCE = 0.5


class Lost(Exception):
    """The worker did not live to answer; the message says why."""

    def __init__(self, status: Status, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class IsolatedBench(Measurer):
    """A Bench in a worker process, which is started anew when a kernel took it down. Close it at the end."""

    def __init__(self, settings: worker.Settings) -> None:
        super().__init__(Stopwatch())
        self._settings = settings
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  # as long as the workers
        self._pool = self._start()
        self._future: Future[Any] | None = None
        self._closed = False

    def close(self) -> None:
        """End the worker at once. A call that waits for it in another thread raises CancelledError."""
        if self._closed:
            return
        self._closed = True
        self._end()
        if self._future is not None:
            self._future.cancel()
        self._errors.close()

    def plan(self, config: Config) -> Plan:
        """See `make_plan`; raises UsageError as it does."""
        try:
            return self._run(worker.plan, config)  # type: ignore[no-any-return]
        except Lost as lost:
            raise UsageError(f"the configuration cannot be planned: {lost}, perhaps by a kernel of yours") from None

    def require(self, code: str, environment: str) -> None:
        """Raise UsageError unless the worker has this code and an environment of this fingerprint."""
        if self._run(worker.observe) != (code, environment):
            raise UsageError(
                f"the worker on {platform.node()} has other code or another environment than the worker that made "
                "the plan, and rows of unlike environments are never pooled"
            )

    def measure_case(self, problem: Problem, method: str, backward: bool) -> Row:
        cells: dict[str, Cell] = identity_of(problem, method)
        try:
            cells = self._identify(problem, method)
            row: Row | None = self._ask("call", problem, method, backward, limit=self._settings.timeout)
            return self._ask("judge") if row is None else row
        except Lost as lost:
            if not backward:
                return hole(cells, lost.status, str(lost))
            forward = self.measure_case(problem, method, backward=False)  # what the forward pass gives stands
            said = {"backward": f"{lost.status}: {lost}"} if forward.status is Status.OK else {}
            return Row({**forward.cells, **said})
        except (UsageError, CancelledError):
            raise
        except Exception as error:  # memory that is too short for the reference, above all
            return hole(cells, Status.RAISED, f"not by the method: {type(error).__name__}: {error}")

    def sample(self, task: Task, rows: list[Row]) -> list[Row]:
        timed = sum(row.status is Status.OK for row in rows)
        if timed == 0:
            return rows
        try:
            limit = self._settings.timeout * timed * (1 + task.backward)
            return self._ask("sample", task, rows, limit=limit)  # type: ignore[no-any-return]
        except Lost as lost:
            if len(rows) == 1:
                return [hole(rows[0].cells, lost.status, f"{lost}, while its latency was sampled")]
            alone = zip(task.methods, rows, strict=True)  # one by one tells which
            return [each for method, row in alone for each in self.sample(replace(task, methods=(method,)), [row])]

    def _identify(self, problem: Problem, method: str) -> dict[str, Cell]:
        """The first step of a case. It runs no kernel, so a worker that ends here suffers from an earlier case."""
        try:
            return self._ask("identify", problem, method)  # type: ignore[no-any-return]
        except Lost:
            return self._ask("identify", problem, method)  # type: ignore[no-any-return]

    def _ask(self, step: str, *arguments: Any, limit: float | None = None) -> Any:
        """What a method of the bench in the worker gives; raises Lost when the worker does not live to say it."""
        value, seconds = self._run(worker.ask, step, *arguments, limit=limit)
        self.watch.add(seconds)
        return value

    def _run(self, function: Callable[..., Any], *arguments: Any, limit: float | None = None) -> Any:
        if self._closed:
            raise CancelledError
        if not self._pool.active:  # the worker ended while nothing was asked of it
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
        """How the worker ended, and the last line that it wrote to stderr."""
        if code is None:
            how = "its process ended"
        elif code < 0:
            how = f"its process was killed by {signal.Signals(-code).name}"
        else:
            how = f"its process ended with exit status {code}"
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").split("\n")
        words = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return f"{how}: {words[:_LONGEST_WORDS]}" if words else how

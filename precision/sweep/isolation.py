"""A bench in a process of its own: a kernel that crashes, hangs or runs out of memory becomes a row like any other."""

from __future__ import annotations

import platform
from concurrent.futures import CancelledError
from dataclasses import replace
from typing import Any

from precision.errors import UsageError
from precision.problem import Problem
from precision.records.row import Cell, Row, Status
from precision.sweep import worker
from precision.sweep.config import Config
from precision.sweep.identity import hole, identity_of
from precision.sweep.measurer import Measurer
from precision.sweep.stopwatch import Stopwatch
from precision.sweep.task import Plan, Task
from precision.sweep.worker_process import Lost, WorkerProcess


class IsolatedBench(Measurer):
    """A Bench in a worker process, which is started anew when a kernel took it down. Close it at the end."""

    def __init__(self, settings: worker.Settings) -> None:
        super().__init__(Stopwatch())
        self._settings = settings
        self._process = WorkerProcess(settings)

    def close(self) -> None:
        """End the worker at once. A call that waits for it in another thread raises CancelledError."""
        self._process.close()

    def plan(self, config: Config) -> Plan:
        """See `make_plan`; raises UsageError as it does."""
        try:
            return self._process.run(worker.plan, config)  # type: ignore[no-any-return]
        except Lost as lost:
            raise UsageError(f"the configuration cannot be planned: {lost}, perhaps by a kernel of yours") from None

    def require(self, code: str, environment: str) -> None:
        """Raise UsageError unless the worker has this code and an environment of this fingerprint."""
        if self._process.run(worker.observe) != (code, environment):
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
        value, seconds = self._process.run(worker.ask, step, *arguments, limit=limit)
        self.watch.add(seconds)
        return value

"""A check in a process of its own: a kernel that crashes, hangs or ends its process gets a verdict like any other."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from precision.checking import worker
from precision.checking.conduct import Conduct, Listener
from precision.checking.result import CheckResult, Outcome, Row
from precision.checking.steps import Kind, Step
from precision.errors import UsageError
from precision.records.row import Status
from precision.sweep.worker import Settings
from precision.sweep.worker_process import Lost, WorkerProcess

# Seconds for what is not the kernel's: imports, and the reasons at the end.
_OVERHEAD = 60.0
_UNSURE = "# The fault depends on earlier calls: this may not show it each time.\n"


def check_isolated(
    target: str,
    *,
    dtypes: Sequence[str] = ("fp32", "fp16", "bf16"),
    device: str = "auto",
    backward: bool = True,
    strict: bool = False,
    timeout: float = 60.0,
    budget: float = 60.0,
    listen: Listener = lambda done, steps, step: None,
) -> CheckResult:
    """`precision.check` of a kernel that a worker process imports, so `target` must be its name.

    A step of the check that takes more than `timeout` seconds is a failure. After `budget` seconds no step begins,
    and what was not reached is a limit. Both must be above 0. Raises UsageError as `precision.check` does.
    """
    for name, seconds in (("timeout", timeout), ("budget", budget)):
        if not 0 < seconds < math.inf:
            raise UsageError(f"{name} is {seconds:g}; it must be a number of seconds above 0")
    with _process() as process:
        try:
            arguments = (target, tuple(dtypes), device, backward, "full")
            steps: list[Step] = process.run(worker.start, *arguments, limit=timeout + _OVERHEAD)
        except Lost as lost:
            raise UsageError(f"{target!r} cannot be imported: {lost}") from None
        session = _IsolatedSession(target, process, device, backward, timeout)
        return Conduct(target, steps, "full", strict, budget, listen).run(session)


@contextmanager
def _process() -> Iterator[WorkerProcess]:
    process = WorkerProcess(Settings())
    try:
        yield process
    finally:
        process.close()


class _IsolatedSession:
    """The session of the worker process, until that is lost."""

    def __init__(self, target: str, process: WorkerProcess, device: str, backward: bool, timeout: float) -> None:
        self._target, self._process = target, process
        self._device, self._backward, self._timeout = device, backward, timeout
        self.ended = False

    def take(self, step: Step, seconds: float) -> list[Row]:
        beside = 0.0 if step.kind is Kind.PROBLEM else max(seconds, 0.0)
        name = step.problem if step.kind is Kind.PROBLEM else step.kind.value
        return self._rows(step.dtype, name, self._timeout + beside, "take", step, seconds)

    def find_changes(self, dtype: str) -> list[Row]:
        return [] if self.ended else self._rows(dtype, "torch-state", _OVERHEAD, "find_changes", dtype)

    def explain(self, rows: Sequence[Row]) -> tuple[str, ...]:
        with suppress(Exception):
            if not self.ended:
                return self._process.run(worker.ask, "explain", rows, limit=_OVERHEAD)  # type: ignore[no-any-return]
        from precision.checking.diagnose import diagnose

        return diagnose(rows, [])  # the values were lost with the process

    def reproduce(self, rows: Sequence[Row]) -> str:
        """The first script that shows something wrong in a new process."""
        scripts = self._scripts(rows)
        return next((script for script in scripts if self._shows(script)), _UNSURE + scripts[-1] if scripts else "")

    def _scripts(self, rows: Sequence[Row]) -> tuple[str, ...]:
        with suppress(Exception):  # the kernel may take the process down while its input is made smaller
            if not self.ended:
                return self._process.run(worker.ask, "scripts", rows, limit=self._timeout)  # type: ignore[no-any-return]
        from precision.checking.reproduce import script_of_row
        from precision.sweep.environment import find_device

        worst = next(row for row in reversed(rows) if row.outcome is Outcome.FAIL)
        return (script_of_row(self._target, worst, find_device(self._device).type, self._backward),)

    def _shows(self, script: str) -> bool:
        with _process() as process:
            try:
                return process.run(worker.shows, script, limit=self._timeout)  # type: ignore[no-any-return]
            except Lost:
                return True

    def _rows(self, dtype: str, name: str, limit: float, what: str, *arguments: Any) -> list[Row]:
        """The rows that a method of the session gives, and one that says how the process ended if it did."""
        try:
            return self._process.run(worker.ask, what, *arguments, limit=limit)  # type: ignore[no-any-return]
        except Lost as lost:
            self.ended = True
            hint = "; a larger timeout gives it more" if lost.status is Status.TIMEOUT else ""
            return [Row(dtype, name, "out", Outcome.FAIL, note=f"{lost}{hint}")]
        except Exception as error:  # what a kernel gives or leaves behind may break anything
            return [Row(dtype, name, "out", Outcome.FAIL, note=f"it cannot be judged: {type(error).__name__}: {error}")]

"""A kernel under check in this process: its steps one by one, and from what went wrong the reasons."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Literal

import torch

from precision.checking.diagnose import diagnose
from precision.checking.invariances import Invariances
from precision.checking.problems import find_problem
from precision.checking.reproduce import Failure, scripts_of, scripts_of_invariances
from precision.checking.result import Outcome, Row
from precision.checking.steadiness import explain_by_calls
from precision.checking.steps import Kind, Step
from precision.checking.trial import Bench, Trial
from precision.checking.truth import KEPT_INPUTS
from precision.kernel import Kernel
from precision.threads import one_thread
from precision.torch_state import watch_torch_state

Level = Literal["full", "quick"]

_SEEDS = {"full": KEPT_INPUTS, "quick": 1}


class Session:
    """Takes the steps of one check. `target` is the kernel's address in the reproduction."""

    ended = False  # it ends with this process

    def __init__(
        self,
        target: str,
        kernel: Kernel,
        device: torch.device,
        backward: bool,
        level: Level,
        changed: Callable[[], list[str]],
    ) -> None:
        self._target, self._kernel, self._device = target, kernel, device
        self._backward, self._level, self._changed = backward, level, changed
        self._failures: list[Failure] = []

    def take(self, step: Step, seconds: float) -> list[Row]:
        """The rows of one step; invariances that were not begun within `seconds` are left out."""
        if step.kind is Kind.INVARIANCES:
            return self._take_invariances(step.dtype, time.perf_counter() + seconds)
        if step.kind is Kind.FP64:
            return self._probe_fp64()
        bench = self._bench(step.dtype, _SEEDS[self._level])
        problem = find_problem(step.problem)
        trial = bench.attempt_fitted(problem)
        if any(row.outcome is Outcome.FAIL for row in trial.rows):
            self._failures.append(Failure(bench, trial.failed[0].problem if trial.failed else problem, trial))
        return list(trial.rows)

    def find_changes(self, dtype: str) -> list[Row]:
        """A row for each part of torch's state that the kernel has changed."""
        return [Row(dtype, "torch-state", "out", Outcome.FAIL, note=f"it changes torch's {w}") for w in self._changed()]

    def explain(self, rows: Sequence[Row]) -> tuple[str, ...]:
        """Why it failed, the likely fault first; empty when it did not."""
        failed = [found.trial.failed for found in self._failures if found.trial.failed]
        return diagnose(rows, failed, explain_by_calls(self._failures))

    def scripts(self, rows: Sequence[Row]) -> tuple[str, ...]:
        """Scripts that show the smallest failing input, the plainest first; none where nothing failed."""
        if self._level == "quick":
            return ()
        if self._failures:
            return scripts_of(self._target, self._failures)
        return scripts_of_invariances(self._target, rows, self._device.type, self._backward)

    def reproduce(self, rows: Sequence[Row]) -> str:
        """The plainest script, which is not tried: a kernel of this process may be a closure."""
        return next(iter(self.scripts(rows)), "")

    def _bench(self, dtype: str, seeds: int) -> Bench:
        return Bench(self._kernel, dtype, self._device, self._backward, seeds)

    def _take_invariances(self, dtype: str, end: float) -> list[Row]:
        rows: list[Row] = []
        for row in Invariances(self._kernel, dtype, self._device, self._backward).rows():
            rows.append(row)
            if time.perf_counter() > end:
                break
        return rows

    def _probe_fp64(self) -> list[Row]:
        """Where the kernel takes fp64 and nobody asked for it, less than fp64 precision is a limit."""
        trial = self._bench("fp64", 1).attempt(find_problem("plain"))
        if trial.failed is not None:
            return _as_limits(trial)
        return list(trial.rows) if all(row.outcome is Outcome.OK for row in trial.rows) else []


@contextmanager
def open_session(target: str, kernel: Kernel, device: torch.device, backward: bool, level: Level) -> Iterator[Session]:
    """A session in which torch uses one thread, which repeats bit for bit, and its state is put back at the end."""
    with one_thread(device), watch_torch_state() as changed:
        yield Session(target, kernel, device, backward, level, changed)


def _as_limits(trial: Trial) -> list[Row]:
    note = "inputs in fp64 are computed with less precision"
    return [replace(row, outcome=Outcome.LIMIT, note=note) for row in trial.rows if row.outcome is Outcome.FAIL]

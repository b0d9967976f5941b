"""One kernel on one problem: call it, hold its values against the rule, and say what came of it as rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch

from precision.checking.beyond import judge_beyond
from precision.checking.features import features_of
from precision.checking.fit import fit
from precision.checking.limits import BY_SHAPE
from precision.checking.problems import CheckProblem
from precision.checking.refusal import is_refusal
from precision.checking.result import Outcome, Row
from precision.checking.rule import judge
from precision.checking.truth import Truth, Values, truth_of, yardstick_of
from precision.guard import Guard
from precision.kernel import Broken, Kernel, Unsupported, first_line

# Seconds of calls on one input beyond which more problems tell more than another input.
_SLOW = 1.0


@dataclass(frozen=True)
class Trial:
    """The rows of a problem; `failed` is the truth and the values of the first call that was wrong, if any."""

    rows: tuple[Row, ...]
    failed: tuple[Truth, Values] | None = None
    own_error: str = ""  # with which the kernel refuses what it was called on


class Bench:
    """Puts one kernel on problems in one dtype."""

    def __init__(self, kernel: Kernel, dtype: str, device: torch.device, backward: bool, seeds: int) -> None:
        self.kernel, self.dtype, self.device = kernel, dtype, device
        self._backward, self._seeds = backward, seeds
        self._seconds = 0.0  # in calls on the inputs of a problem
        self._own_error = ""

    def attempt_fitted(self, problem: CheckProblem) -> Trial:
        """The same as `attempt`, in another shape where the kernel refuses that of the problem, which is a limit."""
        trial = self.attempt(problem)
        if not trial.own_error:
            return trial
        fitted = fit(self.kernel, problem, self.dtype, self.device)
        if fitted == problem:
            return trial
        limit = Row(self.dtype, problem.name, "out", Outcome.REFUSED, note=f"{BY_SHAPE}{trial.own_error}")
        trial = self.attempt(fitted)
        return replace(trial, rows=(limit, *trial.rows))

    def attempt(self, problem: CheckProblem) -> Trial:
        """Call the kernel on the problem's inputs, up to the first that goes wrong. A slow one gets one input."""
        rows: list[Row] = []
        self._seconds, self._own_error = 0.0, ""
        for seed in range(1 if problem.beyond or problem.one_input else self._seeds):
            truth = truth_of(problem, self.dtype, seed, self.device)
            rows, values = self._call(truth)
            if values is not None and _has_failed(rows):
                return Trial(tuple(rows), (truth, values))
            if any(row.outcome is not Outcome.OK for row in rows) or self._seconds > _SLOW:
                break
        return Trial(tuple(rows), own_error=self._own_error)

    def _call(self, truth: Truth) -> tuple[list[Row], Values | None]:
        """The output, and where nothing is wrong with it, the output once more with its gradients."""
        rows, values = self._run(truth, "out", lambda: Values(self.kernel.forward(truth.call.x)))
        if not (self._backward and truth.problem.backward) or values is None or _has_failed(rows):
            return rows, values
        again, both = self._run(
            truth, "dq, dk, dv", lambda: Values(*self.kernel.gradients(truth.call.x, truth.call.do))
        )
        return ([*rows, *again], values) if both is None else (again, both)

    def _run(self, truth: Truth, tensors: str, call: Callable[[], Values]) -> tuple[list[Row], Values | None]:
        guard = Guard(truth.call.tensors)
        begin = time.perf_counter()
        try:
            with torch.no_grad():
                values = call()
        except Exception as error:  # a kernel may raise anything
            guard.restore()
            return [self._raised(truth, tensors, error)], None
        finally:
            self._seconds += time.perf_counter() - begin
        written = guard.restore()  # before anything is computed from the inputs
        rows = list(self._judged(truth, values))
        if written:
            rows.append(self._row(truth, "out", Outcome.FAIL, "it writes to its inputs"))
        return rows, values

    def _judged(self, truth: Truth, values: Values) -> Iterator[Row]:
        yardsticks = yardstick_of(truth.problem, self.dtype, self.device)
        for judgement in judge(values, truth, yardsticks):
            if truth.problem.beyond:
                outcome, note = judge_beyond(judgement, values[judgement.tensor], truth)
            else:
                outcome, note = (Outcome.OK if judgement.passed else Outcome.FAIL), ", ".join(judgement.faults)
            yield Row(
                self.dtype,
                truth.problem.name,
                judgement.tensor,
                outcome,
                judgement.max_abs,
                judgement.max_allowed,
                judgement.rms,
                judgement.rms_allowed,
                judgement.bias,
                judgement.bias_allowed,
                judgement.not_finite,
                note,
            )

    def _raised(self, truth: Truth, tensor: str, error: Exception) -> Row:
        said = (
            first_line(error)
            if isinstance(error, Unsupported | Broken)
            else f"{type(error).__name__}: {first_line(error)}"
        )
        what = " and ".join(features_of(truth.call))
        if isinstance(error, Unsupported):
            note = f"no backward: {said}" if tensor != "out" else f"{what} refused: {said}"
            return self._row(truth, tensor, Outcome.REFUSED, note)
        if truth.problem.may_be_refused:
            return self._row(truth, tensor, Outcome.OK, f"refused: {said}")
        if tensor == "out" and not isinstance(error, Broken) and is_refusal(error):
            self._own_error = said
        if truth.problem.beyond:
            return self._row(truth, tensor, Outcome.REFUSED, f"refused {truth.problem.beyond}: {said}")
        if isinstance(error, Broken) or not (what or is_refusal(error)):
            return self._row(truth, tensor, Outcome.FAIL, said)
        return self._row(truth, tensor, Outcome.REFUSED, f"{what} refused: {said}" if what else f"{BY_SHAPE}{said}")

    def _row(self, truth: Truth, tensor: str, outcome: Outcome, note: str) -> Row:
        return Row(self.dtype, truth.problem.name, tensor, outcome, note=note)


def _has_failed(rows: list[Row]) -> bool:
    return any(row.outcome is Outcome.FAIL for row in rows)

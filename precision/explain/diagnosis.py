"""What a kernel, and the plan that it behaves like, do with one problem: which stage costs most, what fails first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

from precision.backends.backend import Absent, Refused, backends
from precision.errors import UsageError
from precision.explain.attribution import Attribution, attribute
from precision.explain.fingerprint import Likeness
from precision.explain.first_failure import find_failures
from precision.explain.question import Question
from precision.explain.target import find_target, run_target
from precision.formats import find_format
from precision.inputs.make import make_inputs, make_upstream
from precision.numerics.failure import Failure
from precision.numerics.infer_failure import infer_failures
from precision.numerics.reference import attend
from precision.numerics.row_hazards import Kernel
from precision.operands import Operands
from precision.problem import Problem
from precision.report.show import listed, number, percent
from precision.stages.plan import Plan
from precision.sweep.environment import find_device
from precision.threads import one_thread

Found = TypeVar("Found")


@dataclass(frozen=True)
class Diagnosis:
    """One problem in one dtype. Where a part could not be made, the reason stands in its place."""

    problem: Problem
    method: str  # computes the plan that the kernel behaves like
    attribution: Attribution | str  # of that plan
    failures: tuple[Failure, ...] | str  # of the kernel, inferred from its output
    plan_failures: tuple[Failure, ...] | str  # of that plan, stage by stage

    @property
    def sentences(self) -> list[str]:
        """What costs most, and what fails first."""
        return [f"{self.problem.dtype}: {sentence}" for sentence in (self._cost, self._first_failure)]

    @property
    def _cost(self) -> str:
        if isinstance(self.attribution, str):
            return f"no stage's share of the error can be told: {self.attribution}"
        if "out" not in self.attribution.tensors:
            return "the nearest plan makes no error in out on these inputs"
        most, total = self.attribution.costliest(), self.attribution.total["out"]
        groups, shares = [each.group for each in most], [percent(each.share) for each in most]
        cost, which = ("costs most", "this") if len(most) == 1 else ("cost most, and about the same", "one such")
        return (
            f"{listed(groups)} {cost}, {listed(shares)} of the mean square of the {self.attribution.error} error of "
            f"out; that error is {number(total.rms)} rms, and {listed([number(each.alone.rms) for each in most])} "
            f"with {which} stage alone"
        )

    @property
    def _first_failure(self) -> str:
        if isinstance(self.failures, str):
            return f"it does not take this problem: {self.failures}"
        shown = [failure for failure in self.failures if failure.is_shown]
        return f"first failure: {shown[0].sentence}" if shown else "first failure: none that the output shows"

    def to_json(self) -> dict[str, Any]:
        """Everything, as plain values."""
        return {
            "problem": str(self.problem),
            "dtype": self.problem.dtype,
            "plan": self.method,
            "attribution": self.attribution if isinstance(self.attribution, str) else self.attribution.to_json(),
            "failures": _failures_to_json(self.failures),
            "plan_failures": _failures_to_json(self.plan_failures),
        }


def _failures_to_json(failures: tuple[Failure, ...] | str) -> list[dict[str, Any]] | str:
    return failures if isinstance(failures, str) else [failure.to_json() for failure in failures]


def diagnose(target: str, nearest: Sequence[Likeness], question: Question, device: str = "auto") -> list[Diagnosis]:
    """The diagnosis of a kernel whose nearest plans are known, for each dtype in which the problem exists.

    Raises UsageError when the question makes no sense.
    """
    place = find_device(device)
    problems = {problem.dtype: problem for problem in question.problems([likeness.dtype for likeness in nearest])}
    methods = {likeness.dtype: likeness.method for likeness in nearest}
    with one_thread(place):
        return [_diagnose(target, methods[dtype], problem, question, place) for dtype, problem in problems.items()]


def _diagnose(target: str, method: str, problem: Problem, question: Question, device: torch.device) -> Diagnosis:
    plan: Plan = backends.build(method).resolved  # type: ignore[attr-defined]  # every one of the lattice is staged
    x = make_inputs(problem, device).rounded
    do = make_upstream(problem, device) if question.backward else None
    return Diagnosis(
        problem,
        method,
        _or_reason(lambda: attribute(problem, plan, question.error, question.backward, device=device)),
        _or_reason(lambda: _infer(target, problem.dtype, x)),
        _or_reason(lambda: find_failures(plan, x, do)),
    )


def _infer(target: str, dtype: str, x: Operands) -> tuple[Failure, ...]:
    backend = find_target(target)
    kernel = Kernel.of(target, backend.max_subtraction)
    return infer_failures(run_target(target, backend, x), attend(x), find_format(dtype), kernel)


def _or_reason(make: Callable[[], Found]) -> Found | str:
    """What it makes, or why it cannot."""
    try:
        return make()
    except (Refused, Absent, UsageError) as error:
        return str(error)

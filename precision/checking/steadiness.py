"""Whether a failure comes of the call at all, or of chance or earlier calls: that comes before every other guess."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from precision.checking.problems import CheckProblem, find_problem
from precision.checking.reproduce import Failure
from precision.checking.rule import judge
from precision.checking.trial import Bench
from precision.checking.truth import Truth, Values, truth_of, yardstick_of
from precision.guard import Guard
from precision.problem import Shape

KEPT = "a call is wrong after another of the same shape: something is kept between calls"

_MOST_TRIED = 3
_CALLS = 8  # of which one in six that goes wrong is met with a probability of 3/4; the failure itself was one more
# Of its error: what is less is another order of sums, and not the fault.
_APART = 1 / 3
# Added to both lengths, so that each shape is new to the kernel: two for each of the problems that come in between.
_OTHERS = ("plain", "scale-0.3", "bool-full")
_NEW_LENGTHS = (5, 7, 11, 13, 17, 19)


def explain_by_calls(failures: Sequence[Failure]) -> str:
    """A sentence on chance or on earlier calls; empty when the same call is wrong in the same way each time."""
    wrong = [failure for failure in failures if failure.trial.failed is not None]
    wrong.sort(key=lambda failure: failure.problem.shape.q_len * failure.problem.shape.kv_len)
    for failure in wrong[:_MOST_TRIED]:
        assert failure.trial.failed is not None
        if said := _differs(failure.bench, *failure.trial.failed):
            return said
    return KEPT if any(_is_of_earlier_calls(failure) for failure in wrong[:_MOST_TRIED]) else ""


def _differs(bench: Bench, truth: Truth, found: Values) -> str:
    """Whether the same call again gives something else, by a good part of the error."""
    for _ in range(_CALLS):
        again = _call(bench, truth, found.gradients is not None)
        if again is None:
            continue
        for tensor in again.tensors:
            apart = _apart(again[tensor].double(), found[tensor].double())
            if apart > _APART * float(truth.error(tensor, found[tensor]).abs().max()):
                by = f" by {apart:.2g}" if math.isfinite(apart) else ""
                where = f"in {tensor} of {truth.problem.name}"
                return f"two calls with the same inputs differ{by} {where}: a race, dropout, or memory never written"
    return ""


def _is_of_earlier_calls(failure: Failure) -> bool:
    """Both of two calls of a new shape are right when they come first, and wrong when the other one came first."""
    assert failure.trial.failed is not None
    truth, found = failure.trial.failed
    problem, dtype, device = failure.problem, truth.format.name, truth.call.do.device

    def is_right(problem: CheckProblem, shape: Shape) -> bool:
        truth = truth_of(problem.resized(shape), dtype, 0, device)
        values = _call(failure.bench, truth, found.gradients is not None)
        yardsticks = yardstick_of(truth.problem, dtype, device)
        return values is not None and all(judgement.passed for judgement in judge(values, truth, yardsticks))

    lengths = iter(_NEW_LENGTHS)
    for other in (find_problem(name) for name in _OTHERS):
        first, second = (_lengthened(problem.shape, more) for more in (next(lengths), next(lengths)))
        if problem.resized(first).make(dtype, 0, device).x.q.shape[2] != first.q_len:
            return False  # its operands do not depend on the shape
        alone = is_right(problem, first) and is_right(other, second)
        if alone and not is_right(other, first) and not is_right(problem, second):
            return True
    return False


def _lengthened(shape: Shape, more: int) -> Shape:
    return replace(shape, q_len=shape.q_len + more, kv_len=shape.kv_len + more)


def _call(bench: Bench, truth: Truth, backward: bool) -> Values | None:
    """What the kernel gives now; None when it raises."""
    guard = Guard(truth.call.tensors)
    try:
        with torch.no_grad():
            if backward:
                return Values(*bench.kernel.gradients(truth.call.x, truth.call.do))
            return Values(bench.kernel.forward(truth.call.x))
    except Exception:  # a kernel may raise anything
        return None
    finally:
        guard.restore()


def _apart(one: Tensor, other: Tensor) -> float:
    """The largest difference; infinite where one is not finite and the other is something else."""
    same = (one == other) | (one.isnan() & other.isnan())
    return float((one - other).abs().nan_to_num(math.inf).masked_fill(same, 0.0).max())

"""Scripts of ten lines that show the smallest failing input, and what is wrong there."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass
from typing import Any

import torch
from torch import Tensor

from precision.checking.problems import PROBLEMS, CheckProblem, find_problem
from precision.checking.result import Outcome, Row
from precision.checking.shrink import shrink
from precision.checking.trial import Bench, Trial

_CPU = torch.device("cpu")

_FORWARD = """\
from precision.checking.case import Case
from precision.loading import loaded

case = {case}
with loaded({target}) as attention:
    out = attention(case.q, case.k, case.v{keywords})
print(case.judge(out))
"""
_BACKWARD = """\
import torch
from precision.checking.case import Case
from precision.loading import loaded

case = {case}
with loaded({target}) as attention:
    qkv = [tensor.detach().requires_grad_() for tensor in (case.q, case.k, case.v)]
    out = attention(*qkv{keywords})
    print(case.judge(out, *torch.autograd.grad(out, qkv, case.do)))
"""
# Another call of the same shape comes before it, and it comes more than once.
_AGAIN = """\
from precision.checking.case import Case
from precision.loading import loaded

other = {other}
case = {case}
with loaded({target}) as attention:
    for each in (other, case) * 10:
        print(each.run(attention, backward={backward}))
"""
_INVARIANCES = """\
import torch
from precision.checking.invariances import Invariances
from precision.kernel import Kernel
from precision.loading import loaded

with loaded({target}) as attention:
    for row in Invariances(Kernel.of(attention), "{dtype}", torch.device("{device}"), backward={backward}).rows():
        print(row.problem, "is", row.note or "right")
"""


@dataclass(frozen=True)
class Failure:
    """A problem that went wrong, and how."""

    bench: Bench
    problem: CheckProblem
    trial: Trial

    @property
    def seed(self) -> int:
        """Of the inputs of the call that went wrong."""
        return self.trial.failed[0].seed if self.trial.failed else 0

    @property
    def backward(self) -> bool:
        """Whether it was a call with gradients."""
        if self.trial.failed:
            return self.trial.failed[1].gradients is not None
        return next(row for row in self.trial.rows if row.outcome is Outcome.FAIL).tensor != "out"

    def case(self, problem: CheckProblem, seed: int) -> str:
        """A call in the same dtype on the same device."""
        return _case(problem, self.bench.dtype, seed, self.bench.device.type)


def scripts_of_invariances(target: str, rows: Iterable[Row], device: str, backward: bool) -> tuple[str, ...]:
    """The script for the first failed row where every problem by itself is right; none for torch's state."""
    dtypes = [row.dtype for row in rows if row.outcome is Outcome.FAIL and row.problem != "torch-state"]
    return tuple(_invariances(target, dtype, device, backward) for dtype in dtypes[:1])


def scripts_of(target: str, failures: Sequence[Failure]) -> tuple[str, ...]:
    """Scripts for the smallest failing input, the plainest first.

    Where that shows nothing by itself, the fault depends on earlier calls, and the others make some. A small input
    may then be one that failed because of those, so the problem comes as it was, too.
    """
    found = min(failures, key=lambda failure: _size(failure.problem))
    small = Failure(found.bench, *shrink(found.bench, found.problem, found.trial))
    return _script_of_failure(target, small), _again(target, small), _again(target, found)


def script_of_row(target: str, row: Row, device: str, backward: bool) -> str:
    """The script for a row that took its process down, its input as it was."""
    if row.problem not in {problem.name for problem in PROBLEMS}:
        return _invariances(target, row.dtype, device, backward)
    problem = find_problem(row.problem)
    x = problem.make(row.dtype, 0, _CPU).x
    arguments = {name: value for name, value in x.keywords.items() if value is not None and value is not False}
    case = _case(problem, row.dtype, 0, device)
    return _script(target, case, arguments, backward and problem.backward)


def _script_of_failure(target: str, failure: Failure) -> str:
    x = failure.problem.make(failure.bench.dtype, failure.seed, _CPU).x
    case = failure.case(failure.problem, failure.seed)
    return _script(target, case, failure.bench.kernel.arguments(x), failure.backward)


def _again(target: str, failure: Failure) -> str:
    """With a plain call of the same shape before each call that is wrong."""
    other = failure.case(find_problem("plain").resized(failure.problem.shape), failure.seed + 1)
    case = failure.case(failure.problem, failure.seed)
    return _AGAIN.format(other=other, case=case, target=_quoted(target), backward=failure.backward)


def _script(target: str, case: str, arguments: dict[str, Any], backward: bool) -> str:
    keywords = "".join(
        f", {name}={'case.mask' if isinstance(value, Tensor) else value}" for name, value in arguments.items()
    )
    return (_BACKWARD if backward else _FORWARD).format(case=case, target=_quoted(target), keywords=keywords)


def _invariances(target: str, dtype: str, device: str, backward: bool) -> str:
    return _INVARIANCES.format(target=_quoted(target), dtype=dtype, device=device, backward=backward)


def _case(problem: CheckProblem, dtype: str, seed: int, device: str) -> str:
    place = "" if device == "cpu" else f', device="{device}"'
    return f'Case("{problem.name}", "{dtype}", {astuple(problem.shape)}, seed={seed}{place})'


def _size(problem: CheckProblem) -> tuple[bool, int]:
    """Ordinary inputs before those that are beyond the format, and small ones before large ones."""
    return bool(problem.beyond), problem.shape.q_len * problem.shape.kv_len


def _quoted(target: str) -> str:
    return json.dumps(target, ensure_ascii=False)

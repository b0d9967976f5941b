"""The problems that a kernel is checked on. One more is one entry of a list in one of these modules."""

from __future__ import annotations

from precision.checking.problems import broadcasts, combinations, from_zoo, layouts, masks, shapes, sizes, sums
from precision.checking.problems.problem import Call, CheckProblem
from precision.errors import UsageError, nearest

__all__ = ["PROBLEMS", "Call", "CheckProblem", "find_problem"]

PROBLEMS: tuple[CheckProblem, ...] = (
    *shapes.PROBLEMS,
    *masks.PROBLEMS,
    *broadcasts.PROBLEMS,
    *sizes.PROBLEMS,
    *sums.PROBLEMS,
    *layouts.PROBLEMS,
    *combinations.PROBLEMS,
    *from_zoo.zoo_problems(),
)

_BY_NAME = {problem.name: problem for problem in PROBLEMS}
assert len(_BY_NAME) == len(PROBLEMS), "two problems have the same name"


def find_problem(name: str) -> CheckProblem:
    """The problem of that name; raises UsageError when there is none."""
    if name not in _BY_NAME:
        raise UsageError(f"unknown problem {name!r}; {nearest(name, _BY_NAME)}")
    return _BY_NAME[name]

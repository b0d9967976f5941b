"""Which steps a check has; the essential ones come first, so that a short check says most."""

from __future__ import annotations

from collections.abc import Sequence

from precision.checking.problems import PROBLEMS
from precision.checking.steps import Kind, Step

# One of each feature and of each kind of remainder: what a slow kernel is tried on before anything else.
_ESSENTIAL = ("plain", "one-key", "one-query", "causal", "bool-full", "additive-full", "gqa-6-2", "scale-0.3", "31x33")


def plan(dtypes: Sequence[str]) -> list[Step]:
    """The steps of a whole check, in the order in which they are taken."""
    essential = [problem for problem in PROBLEMS if problem.name in _ESSENTIAL]
    rest = [problem for problem in PROBLEMS if problem.name not in _ESSENTIAL]
    first, then = (
        [Step(dtype, problem.name) for problem in problems for dtype in dtypes if dtype in problem.dtypes]
        for problems in (essential, rest)
    )
    invariances = [Step(dtype, "plain", Kind.INVARIANCES) for dtype in dtypes]
    probe = [] if "fp64" in dtypes else [Step("fp64", "plain", Kind.FP64)]
    return [*first, *invariances, *then, *probe]

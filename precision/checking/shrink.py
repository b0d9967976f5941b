"""The smallest failing input: try smaller shapes for as long as the kernel still fails."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import replace

from precision.checking.problems import CheckProblem
from precision.checking.result import Outcome
from precision.checking.trial import Bench, Trial
from precision.problem import Shape

_SECONDS = 4.0  # of trying; the rest of a minute belongs to the check itself


def shrink(bench: Bench, problem: CheckProblem, trial: Trial) -> tuple[CheckProblem, Trial]:
    """A problem of the same kind with the same fault, as small as was found, and what came of it."""
    faults = _faults(trial)
    end = time.perf_counter() + _SECONDS
    smaller = True
    while smaller and time.perf_counter() < end:
        smaller = False
        for shape in _smaller(problem.shape):
            candidate = problem.resized(shape)
            found = bench.attempt(candidate)
            if faults & _faults(found):
                problem, trial, smaller = candidate, found, True
                break
            if time.perf_counter() > end:
                break
    return problem, trial


def _faults(trial: Trial) -> set[tuple[str, str]]:
    """What is wrong with which tensor; the numbers in a sentence go with the shape."""
    bad = [row for row in trial.rows if row.outcome is Outcome.FAIL]
    return {(row.tensor, re.sub(r"\d+", "#", fault)) for row in bad for fault in row.note.split(", ")}


def _smaller(shape: Shape) -> Iterator[Shape]:
    """Shapes with one side made smaller: to 1, then by half, then by one."""
    if shape.batch > 1:
        yield replace(shape, batch=1)
    if shape.kv_heads > 1:
        yield replace(shape, q_heads=shape.q_heads // shape.kv_heads, kv_heads=1)
    for name in ("q_len", "kv_len"):
        length = getattr(shape, name)
        for fewer in sorted({1, length // 2, length - 1}):
            if 1 <= fewer < length:
                yield replace(shape, **{name: fewer})
    if shape.d_k == shape.d_v > 4:
        yield replace(shape, d_k=shape.d_k // 4 or 1, d_v=shape.d_v // 4 or 1)

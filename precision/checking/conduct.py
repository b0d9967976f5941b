"""The conduct of a check: which steps are taken, when it ends, and what it comes to."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from precision.checking.limits import find_refusal, list_limits
from precision.checking.result import CheckResult, Outcome, Row, Verdict
from precision.checking.steps import Kind, Step

if TYPE_CHECKING:
    from precision.checking.session import Level

# Steps done, steps in all, and the one that begins.
Listener = Callable[[int, int, Step], None]


class Taker(Protocol):
    """Takes steps: a Session, or one in a process of its own. See Session."""

    def take(self, step: Step, seconds: float) -> list[Row]: ...

    def find_changes(self, dtype: str) -> list[Row]: ...

    def explain(self, rows: Sequence[Row]) -> tuple[str, ...]: ...

    def reproduce(self, rows: Sequence[Row]) -> str: ...

    @property
    def ended(self) -> bool:
        """Whether no further step can be taken."""
        ...


@dataclass
class Conduct:
    """One check under way: the steps in order, until one ends it or `budget` seconds are over."""

    target: str
    steps: list[Step]
    level: Level
    strict: bool = False
    budget: float = math.inf
    listen: Listener = lambda done, steps, step: None
    rows: list[Row] = field(default_factory=list)

    def run(self, taker: Taker) -> CheckResult:
        """Take the steps and say what came of them."""
        begin = time.perf_counter()
        left = self._take_steps(taker, begin + self.budget)
        self.rows += [*find_refusal(self.rows), *taker.find_changes(self.steps[0].dtype)]
        reasons = taker.explain(self.rows)
        limits = (*list_limits(self.rows), *self._not_reached(left, taker.ended))
        verdict = Verdict.FAIL if reasons else Verdict.PASS_WITH_LIMITS if limits else Verdict.PASS
        return CheckResult(
            kernel=self.target,
            verdict=verdict,
            reasons=reasons,
            limits=limits,
            rows=tuple(self.rows),
            reproduction=taker.reproduce(self.rows),
            seconds=time.perf_counter() - begin,
            strict=self.strict,
        )

    def _take_steps(self, taker: Taker, end: float) -> list[Step]:
        """The steps that were not reached."""
        for number, step in enumerate(self.steps):
            now = time.perf_counter()
            if taker.ended or (number and now > end):
                return self.steps[number:]
            if self._is_wanted(step):
                self.listen(number, len(self.steps), step)
                self.rows += taker.take(step, end - now)
        return []

    def _is_wanted(self, step: Step) -> bool:
        failed = [row for row in self.rows if row.outcome is Outcome.FAIL]
        if step.kind is Kind.FP64:
            return self.level == "full" and not failed
        here = [row for row in failed if row.dtype == step.dtype]
        if self.level == "quick" and here:
            return False
        if step.kind is Kind.PROBLEM:
            return True
        plain = [row for row in self.rows if (row.dtype, row.problem) == (step.dtype, "plain")]
        return any(row.max_abs is not None for row in plain) and not any(row.outcome is Outcome.FAIL for row in plain)

    def _not_reached(self, left: list[Step], lost: bool) -> Iterator[str]:
        problems = {step.problem for step in left if step.kind is Kind.PROBLEM}
        if not problems:
            return
        said = f"{len(problems)} of {len({step.problem for step in self.steps})} problems were not reached"
        yield (
            f"{said}: the check ended with its process"
            if lost
            else (f"{said} in {self.budget:g} s; a larger budget reaches more")
        )

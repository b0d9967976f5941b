"""Reproduce published results: measure, and hold each figure to its right value."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from precision.experiments.effort import Effort
from precision.experiments.evidence import Evidence
from precision.published.published import Comparison, Published, published
from precision.threads import one_thread

Verdict = Literal["pass", "fail"]


@dataclass(frozen=True)
class Finding:
    """A published result with what was measured."""

    name: str
    result: Published
    seen: Evidence
    comparisons: tuple[Comparison, ...]
    seconds: float

    @property
    def sentence(self) -> str:
        """The result, in our words."""
        return (self.result.__doc__ or "").partition("\n")[0]

    @property
    def passed(self) -> bool:
        """Whether every measured value is within its tolerance."""
        return all(comparison.passed for comparison in self.comparisons)

    @property
    def verdict(self) -> Verdict:
        """`pass` or `fail`."""
        return "pass" if self.passed else "fail"


def reproduce(
    names: Sequence[str] | None = None,
    effort: Effort | None = None,
    listener: Callable[[str], None] = lambda name: None,
) -> list[Finding]:
    """The findings of these results, or of all; `listener` hears each name as it starts.

    Raises UsageError on an unknown name and on a file of vectors that cannot be read.
    """
    effort = effort or Effort()
    chosen = [(name, published.build(name)) for name in (names or published.names())]
    with one_thread(torch.device("cpu")):
        return [_find(name, result, effort, listener) for name, result in chosen]


def _find(name: str, result: Published, effort: Effort, listener: Callable[[str], None]) -> Finding:
    listener(name)
    start = time.perf_counter()
    seen = Evidence.of(result.measure(effort))
    return Finding(name, result, seen, result.compare(seen, effort), time.perf_counter() - start)


def verdict_of(findings: Sequence[Finding]) -> Verdict:
    """`fail` when one of them fails."""
    return "pass" if all(finding.passed for finding in findings) else "fail"


def to_json(findings: Sequence[Finding]) -> dict[str, Any]:
    """{"verdict": "pass" | "fail", "rows": [...]}, one row a result."""
    return {"verdict": verdict_of(findings), "rows": [*map(_row, findings)]}


def _row(finding: Finding) -> dict[str, Any]:
    return {
        "name": finding.name,
        "result": finding.sentence,
        "source": finding.result.source,
        "setup": finding.result.setup,
        "choices": finding.result.choices,
        "verdict": finding.verdict,
        "seconds": round(finding.seconds, 3),
        "values": [
            {
                "quantity": c.target.quantity,
                "setting": c.target.setting,
                "x": c.target.x,
                "right": c.target.right,
                "origin": c.target.origin,
                "measured": c.measured if math.isfinite(c.measured) else str(c.measured),  # JSON has no NaN
                "tolerance": c.tolerance,
                "verdict": "pass" if c.passed else "fail",
            }
            for c in finding.comparisons
        ],
    }

"""What a check says: a verdict with its reasons, the limits, and every number behind them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

import pandas as pd


class Verdict(StrEnum):
    """Right; right wherever the format's range allows it and for what the kernel takes; wrong."""

    PASS = "pass"
    PASS_WITH_LIMITS = "pass with limits"
    FAIL = "fail"


class Outcome(StrEnum):
    """What came of one tensor of one problem."""

    OK = "ok"
    LIMIT = "limit"
    REFUSED = "refused"
    FAIL = "fail"


@dataclass(frozen=True)
class Row:
    """One tensor (out, dq, dk, dv) of one problem in one dtype; errors are absolute, the bias is in ulp."""

    dtype: str
    problem: str
    tensor: str
    outcome: Outcome
    max_abs: float | None = None
    max_allowed: float | None = None
    rms: float | None = None
    rms_allowed: float | None = None
    bias_ulp: float | None = None
    bias_allowed: float | None = None
    not_finite: int = 0
    note: str = ""


@dataclass(frozen=True)
class CheckResult:
    """The verdict on one kernel.

    `reasons` say why it failed, the likely fault first; `limits` where it is not right without being wrong;
    `reproduction` is a script of the smallest failing input, empty where nothing failed.
    """

    kernel: str
    verdict: Verdict
    reasons: tuple[str, ...]
    limits: tuple[str, ...]
    rows: tuple[Row, ...]
    reproduction: str
    seconds: float
    strict: bool = False

    @property
    def passed(self) -> bool:
        """Whether the command line exits with 0: no failure, and no limit when the check is strict."""
        return self.verdict is Verdict.PASS or (self.verdict is Verdict.PASS_WITH_LIMITS and not self.strict)

    @property
    def frame(self) -> pd.DataFrame:
        """The rows as a table."""
        return pd.DataFrame([asdict(row) for row in self.rows], columns=list(Row.__dataclass_fields__))

    def to_json(self) -> dict[str, Any]:
        """`verdict` is "pass" or "fail", as for every command; `level` tells the three levels apart."""
        return {
            "verdict": "pass" if self.passed else "fail",
            "level": self.verdict.value,
            "kernel": self.kernel,
            "reasons": list(self.reasons),
            "limits": list(self.limits),
            "reproduction": self.reproduction,
            "seconds": self.seconds,
            "rows": [_finite(asdict(row)) for row in self.rows],
        }


def _finite(cells: dict[str, Any]) -> dict[str, Any]:
    """JSON has no NaN and no infinity."""
    return {
        name: str(value) if isinstance(value, float) and value - value != 0 else value for name, value in cells.items()
    }

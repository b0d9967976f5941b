"""Reproduced results on a terminal."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from precision.published.published import Comparison
from precision.published.run import Finding
from precision.records.show import render as render_frame
from precision.report.show import number


def render(findings: Sequence[Finding]) -> None:
    """Print one line a figure."""
    render_frame(pd.DataFrame([row for finding in findings for row in _rows(finding)]), "table")


def _rows(finding: Finding) -> list[dict[str, str]]:
    return [
        {
            "name": finding.name,
            "quantity": c.target.quantity,
            "setting": c.target.setting + ("" if c.target.x is None else f" at {c.target.x:g}"),
            "right": digits(c.target.right, c),
            "measured": digits(c.measured, c),
            "tolerance": number(c.tolerance),
            "verdict": "pass" if c.passed else "FAIL",
        }
        for c in finding.comparisons
    ]


def digits(value: float, comparison: Comparison) -> str:
    """A value of a comparison as text: six digits where the tolerance is too small for fewer."""
    return f"{value:.6g}" if comparison.tolerance < 1e-3 * abs(comparison.target.right) else number(value)

"""Reproduced results on a terminal."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

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
            "right": f"{c.target.right:.6g}",
            "measured": f"{c.measured:.6g}",
            "tolerance": number(c.tolerance),
            "verdict": "pass" if c.passed else "FAIL",
        }
        for c in finding.comparisons
    ]

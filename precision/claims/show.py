"""Findings on a terminal: a table of several, or one in full."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from precision.claims.run import Finding
from precision.experiments.write import Pages
from precision.records.narrow import Narrow
from precision.records.show import render as render_frame
from precision.records.table import say


def render(findings: Sequence[Finding], written: Pages | None = None) -> None:
    """Print the findings; one alone is shown with all its measured values. `written` tells where its figure is."""
    if len(findings) == 1:
        _render_one(findings[0], written)
    else:
        table = pd.DataFrame([_row(finding) for finding in findings])
        render_frame(table, "table", Narrow(spare=("expected by folklore",)))


def _row(finding: Finding) -> dict[str, str]:
    return {
        "id": finding.id,
        "claim": finding.sentence,
        "expected by folklore": finding.claim.said,
        "measured": finding.judgement.summary,
        "verdict": finding.verdict + ("" if finding.as_expected else f" (the ledger expects {finding.claim.expected})"),
    }


def _render_one(finding: Finding, written: Pages | None) -> None:
    row = _row(finding)
    say(f"{finding.id}: {finding.sentence}")
    say(f"Source: {finding.claim.source}. Expected by folklore: {finding.claim.said}.")
    say(f"{row['verdict'].capitalize()}. {finding.judgement.condition}".strip())
    say(finding.judgement.grounds)
    render_frame(finding.seen.table(), "table")
    if written:
        print(f"Figure: {written.figures[0]}")

"""Write the ledger: two pages, their figures and every measured value, under one folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from precision.claims.page import MEASURED, build_page
from precision.claims.run import Finding
from precision.errors import UsageError
from precision.report.write import render as render_page


@dataclass(frozen=True)
class LedgerPaths:
    """What was written."""

    markdown: Path
    html: Path
    measured: Path
    figures: tuple[Path, ...]


def write_ledger(findings: Sequence[Finding], out: Path, command: str = "precision claims") -> LedgerPaths:
    """Write report.md, report.html, figures/*.svg and measured.csv into the folder `out`, which is made if need be.

    `command` is what makes the page again; the same values give the same bytes.
    Raises UsageError when the folder cannot be written.
    """
    page = build_page(findings, command)
    paths = LedgerPaths(
        out / "report.md",
        out / "report.html",
        out / MEASURED,
        tuple(out / "figures" / f"{figure.name}.svg" for figure in page.figures),
    )
    try:
        (out / "figures").mkdir(parents=True, exist_ok=True)
        for path, figure in zip(paths.figures, page.figures, strict=True):
            path.write_text(figure.svg, encoding="utf-8")
        paths.markdown.write_text(render_page(page, "report.md.j2"), encoding="utf-8")
        paths.html.write_text(render_page(page, "report.html.j2"), encoding="utf-8")
        measured_frame(findings).to_csv(paths.measured, index=False, lineterminator="\n", float_format="%.6g")
    except OSError as error:
        raise UsageError(f"the ledger cannot be written to {str(out)!r}: {error}; name another folder") from error
    return paths


def measured_frame(findings: Sequence[Finding]) -> pd.DataFrame:
    """Every estimate of every claim: id, quantity, setting, x, mean, low, high, replicates."""
    return pd.concat([finding.seen.table().assign(id=finding.id) for finding in findings])[
        ["id", "quantity", "setting", "x", "mean", "low", "high", "replicates"]
    ]

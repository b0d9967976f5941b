"""Write the ledger: two pages, their figures and every measured value, under one folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from precision.claims.page import build_page
from precision.claims.run import Finding
from precision.experiments.write import Pages, write_pages


def write_ledger(findings: Sequence[Finding], out: Path, command: str = "precision claims") -> Pages:
    """Write the pages of these findings into the folder `out`; `command` is what makes them again.

    Raises UsageError when the folder cannot be written.
    """
    return write_pages(build_page(findings, command), measured_frame(findings), out)


def measured_frame(findings: Sequence[Finding]) -> pd.DataFrame:
    """Every estimate of every claim: id, quantity, setting, x, mean, low, high, replicates."""
    return pd.concat([finding.seen.table().assign(id=finding.id) for finding in findings])[
        ["id", "quantity", "setting", "x", "mean", "low", "high", "replicates"]
    ]

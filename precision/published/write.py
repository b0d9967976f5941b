"""Write the reproduced results: two pages, their figures and every measured value, under one folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from precision.experiments.write import Pages, write_pages
from precision.published.page import build_page
from precision.published.run import Finding


def write_reproduction(findings: Sequence[Finding], out: Path, command: str = "precision reproduce") -> Pages:
    """Write the pages of these findings into the folder `out`; `command` is what makes them again.

    Raises UsageError when the folder cannot be written.
    """
    measured = pd.concat([finding.seen.table().assign(name=finding.name) for finding in findings])
    columns = ["name", *(column for column in measured.columns if column != "name")]
    return write_pages(build_page(findings, command), measured[columns], out)

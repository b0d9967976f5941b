"""Write experiments: two pages, their figures and every measured value, under one folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from precision.report.blocks import Report
from precision.report.folder import write_files
from precision.report.write import HTML, MARKDOWN, render

MEASURED = "measured.csv"


@dataclass(frozen=True)
class Pages:
    """What was written."""

    markdown: Path
    html: Path
    measured: Path
    figures: tuple[Path, ...]


def write_pages(page: Report, measured: pd.DataFrame, out: Path) -> Pages:
    """Write report.md, report.html, figures/*.svg and measured.csv into the folder `out` (report/folder.py).

    The same page and values give the same bytes. Raises UsageError when the folder cannot be written or another file
    is in the way.
    """
    files = {f"figures/{figure.name}.svg": figure.svg for figure in page.figures}
    paths = Pages(out / MARKDOWN, out / HTML, out / MEASURED, tuple(out / name for name in files))
    files |= {MARKDOWN: render(page, "report.md.j2"), HTML: render(page, "report.html.j2")}
    files |= {MEASURED: measured.to_csv(index=False, lineterminator="\n", float_format="%.6g")}
    write_files(out, files)
    return paths

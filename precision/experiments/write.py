"""Write experiments: two pages, their figures and every measured value, under one folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from precision.errors import UsageError
from precision.report.blocks import Report
from precision.report.write import render

MEASURED = "measured.csv"


@dataclass(frozen=True)
class Pages:
    """What was written."""

    markdown: Path
    html: Path
    measured: Path
    figures: tuple[Path, ...]


def write_pages(page: Report, measured: pd.DataFrame, out: Path) -> Pages:
    """Write report.md, report.html, figures/*.svg and measured.csv into the folder `out`, which is made if need be.

    The same page and values give the same bytes. Raises UsageError when the folder cannot be written.
    """
    paths = Pages(
        out / "report.md",
        out / "report.html",
        out / MEASURED,
        tuple(out / "figures" / f"{figure.name}.svg" for figure in page.figures),
    )
    try:
        (out / "figures").mkdir(parents=True, exist_ok=True)
        for path, figure in zip(paths.figures, page.figures, strict=True):
            path.write_text(figure.svg, encoding="utf-8")
        paths.markdown.write_text(render(page, "report.md.j2"), encoding="utf-8")
        paths.html.write_text(render(page, "report.html.j2"), encoding="utf-8")
        measured.to_csv(paths.measured, index=False, lineterminator="\n", float_format="%.6g")
    except OSError as error:
        raise UsageError(f"the pages cannot be written to {str(out)!r}: {error}; name another folder") from error
    return paths

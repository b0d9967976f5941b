"""Write a report: two pages, their figures, the rows and the configuration, all under one folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import jinja2
import pandas as pd

from precision.markdown import code_span, escape
from precision.records.run_record import RunRecord
from precision.records.store import DEFAULT_STORE
from precision.report.blocks import Figure, Report
from precision.report.build import build_report
from precision.report.folder import write_files
from precision.report.show import show
from precision.report.source import Source

MARKDOWN, HTML, ROWS = "report.md", "report.html", "rows.csv"


@dataclass(frozen=True)
class ReportPaths:
    """What was written."""

    markdown: Path
    html: Path
    rows: Path | None  # None where they are too many
    config: Path
    figures: tuple[Path, ...]
    report: Report  # what the pages show


def write_report(record: RunRecord, frame: pd.DataFrame, out: Path, *, store: Path = DEFAULT_STORE) -> ReportPaths:
    """Write report.md, report.html, figures/*.svg, rows.csv and the configuration into the folder `out` (folder.py).

    The same run gives the same bytes. `store`, where the rows are kept, stands in the command that exports them.
    Raises UsageError when the folder cannot be written or another file is in the way, and when a row lacks what every
    row has.
    """
    source = Source(record, frame, store)
    report = build_report(source)
    files = {f"figures/{figure.name}.svg": figure.svg for figure in report.figures}
    paths = ReportPaths(
        out / MARKDOWN,
        out / HTML,
        out / ROWS if source.rows_csv is not None else None,
        out / source.config_file,
        tuple(out / name for name in files),
        report,
    )
    files |= {MARKDOWN: render(report, "report.md.j2"), HTML: render(report, "report.html.j2")}
    files |= {source.config_file: record.config}
    if source.rows_csv is not None:
        files[ROWS] = source.rows_csv
    write_files(out, files)
    return paths


def render(report: Report, template: str) -> str:
    """One page from its template in templates/."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("precision.report"),
        undefined=jinja2.StrictUndefined,
        autoescape=jinja2.select_autoescape(["html.j2"], default=False),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"show": show, "md": escape, "md_code": code_span, "data_uri": data_uri}
    return environment.get_template(template).render(report=report)


def data_uri(figure: Figure) -> str:
    """The SVG as an address, so that the page needs no other file."""
    return "data:image/svg+xml," + quote(figure.svg, safe=" /:;=,.()'-!?@*+<>\"&")

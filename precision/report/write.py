"""Write a report: two pages, their figures, the rows and the configuration, all under one folder."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import jinja2
import pandas as pd

from precision.errors import UsageError
from precision.markdown import code_span, escape
from precision.records.store import DEFAULT_STORE, RunRecord
from precision.report.blocks import Figure, Report
from precision.report.build import build_report
from precision.report.show import show
from precision.report.source import Source


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
    """Write report.md, report.html, figures/*.svg, rows.csv and the configuration into the folder `out`.

    The folder is made when it is not there. Figures and rows of an earlier report in it that this one lacks are
    removed; its other files stay as they are. The same run gives the same bytes. `store`, where the rows are kept,
    stands in the command that exports them. Raises UsageError when the folder cannot be written, or when a row lacks
    what every row has.
    """
    source = Source(record, frame, store)
    report = build_report(source)
    paths = ReportPaths(
        out / "report.md",
        out / "report.html",
        out / "rows.csv" if source.rows_csv is not None else None,
        out / source.config_file,
        tuple(out / "figures" / f"{figure.name}.svg" for figure in report.figures),
        report,
    )
    try:
        for path in earlier_files(out) - {*paths.figures, paths.rows}:
            path.unlink(missing_ok=True)
        (out / "figures").mkdir(parents=True, exist_ok=True)
        for path, figure in zip(paths.figures, report.figures, strict=True):
            path.write_text(figure.svg, encoding="utf-8")
        paths.markdown.write_text(render(report, "report.md.j2"), encoding="utf-8")
        paths.html.write_text(render(report, "report.html.j2"), encoding="utf-8")
        paths.config.write_text(record.config, encoding="utf-8")
        if paths.rows is not None and source.rows_csv is not None:
            paths.rows.write_text(source.rows_csv, encoding="utf-8", newline="")
    except OSError as error:
        raise UsageError(f"the report cannot be written to {str(out)!r}: {error}; name another folder") from error
    return paths


def earlier_files(out: Path) -> set[Path]:
    """The figures and rows to which the report that lies in a folder links."""
    page = out / "report.md"
    if not page.is_file():
        return set()
    linked = re.findall(r"\]\((figures/[\w-]+\.svg|rows\.csv)\)", page.read_text(encoding="utf-8", errors="replace"))
    return {out / name for name in linked}


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

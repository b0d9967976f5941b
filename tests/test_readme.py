"""The README says what the committed report says, and every command that it shows exists."""

import re
from pathlib import Path

import typer

from precision.cli import app

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def plain(text: str) -> str:
    """On one line, with plain spaces."""
    return " ".join(text.replace("\N{NO-BREAK SPACE}", " ").split())


def test_the_findings_are_those_of_the_committed_report() -> None:
    first_screen = README.split("## Two commands")[0]
    findings = re.findall(r"^- .*(?:\n  .*)*", first_screen, flags=re.MULTILINE)
    report = plain((ROOT / "reports" / "cpu" / "report.md").read_text(encoding="utf-8"))
    assert len(findings) == 3
    for finding in findings:
        assert plain(finding) in report, finding


def test_every_link_and_figure_is_there() -> None:
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", README):
        assert (ROOT / target).exists(), target


def test_every_command_exists() -> None:
    known = set(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
    shown = set(re.findall(r"^(?:\.venv/bin/)?precision ([a-z]+)", README, flags=re.MULTILINE))
    assert shown
    assert shown <= known

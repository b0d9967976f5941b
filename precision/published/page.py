"""The reproduced results as a page: the verdict, a table of all, and each with its figures and its choices."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from precision.experiments.plot import draw
from precision.experiments.write import MEASURED
from precision.published.published import Comparison
from precision.published.run import Finding
from precision.published.show import digits
from precision.report.blocks import Cell, Field, Figure, Link, Report, Section, Table
from precision.report.show import listed, number, plural
from precision.sweep.environment import observe_environment

_COMPARISON = (
    Field("quantity", "text"),
    Field("setting", "text"),
    Field("at"),
    Field("verdict", "text"),
    Field("measured", "text"),
    Field("right value", "text"),
    Field("tolerance", "text"),
    Field("right value from", "text"),
)


def build_page(findings: Sequence[Finding], command: str) -> Report:
    """The report of these findings; `command` makes it again."""
    environment = observe_environment(torch.device("cpu"))
    return Report(
        title="Published results, made again",
        facts=(plural(len(findings), "result"), f"torch {environment['torch']}", environment["cpu"]),
        verdict=tuple(_verdict(findings)),
        command=command,
        sections=(_overview(findings), *map(_section, findings)),
    )


def _verdict(findings: Sequence[Finding]) -> list[str]:
    values = [comparison for finding in findings for comparison in finding.comparisons]
    held = sum(comparison.passed for comparison in values)
    missed = [finding.name for finding in findings if not finding.passed]
    sentences = [
        f"{plural(len(findings) - len(missed), 'result')} of {len(findings)} made again: {held} of "
        f"{plural(len(values), 'figure')} within the stated tolerance."
    ]
    return [*sentences, f"Not made again: {listed(missed)}."] if missed else sentences


def _overview(findings: Sequence[Finding]) -> Section:
    rows: list[tuple[Cell, ...]] = [
        (f.name, f.verdict, f"{sum(c.passed for c in f.comparisons)} of {len(f.comparisons)}", f.sentence)
        for f in findings
    ]
    fields = (
        Field("name", "code"),
        Field("verdict", "text"),
        Field("figures that hold", "text"),
        Field("result", "text"),
    )
    sentences = (
        "Each result is measured by this package's own code, with the set-up of its source. It passes when every "
        "measured value is within the tolerance that stands beside it.",
        "A right value is published, or follows from theory, or, where neither gives a number, was measured before on "
        "other draws of the same set-up.",
    )
    table = Table("Every result.", fields, tuple(rows))
    return Section("results", "All results", sentences, (table, Link(MEASURED, "Every measured value")))


def _section(finding: Finding) -> Section:
    result = finding.result
    sentences = (
        finding.sentence,
        f"Source: {result.source}.",
        f"Set-up: {result.setup}",
        f"What the source leaves open, and what is chosen here: {result.choices}",
    )
    table = Table("Measured against the right values.", _COMPARISON, tuple(map(_row, finding.comparisons)))
    if result.plot is None:
        return Section(finding.name, finding.name, sentences, (table,))
    figure = Figure(
        name=finding.name,
        svg=draw(result.plot, finding.seen, _rights(finding)),
        caption=f"{result.plot.caption} Hollow: the right value.",
        alt=f"Measured values of {finding.name}.",
    )
    return Section(finding.name, finding.name, sentences, (table, figure))


def _rights(finding: Finding) -> dict[tuple[str, str, float | None], float]:
    targets = [comparison.target for comparison in finding.comparisons]
    return {(target.quantity, target.setting, target.x): target.right for target in targets}


def _row(comparison: Comparison) -> tuple[Cell, ...]:
    target = comparison.target
    allowed = "exact" if comparison.tolerance == 0 else f"± {number(comparison.tolerance)}"
    return (
        target.quantity, target.setting, target.x, "pass" if comparison.passed else "fail",
        digits(comparison.measured, comparison), digits(target.right, comparison), allowed, target.origin,
    )  # fmt: skip

"""The ledger as a page: the answer, what a reader needs to follow it, the table, and every claim with its figure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import torch

from precision.claims.primer import PRIMER
from precision.claims.run import Finding
from precision.experiments.plot import draw
from precision.experiments.write import MEASURED
from precision.report.blocks import Cell, Field, Figure, Link, Report, Section, Table
from precision.report.show import listed, plural, span
from precision.sweep.environment import observe_environment

# The answer in the order in which a reader asks.
_ANSWER = ("variance", "saturation-99", "jacobian", "q-k-gradients", "fp16-zero-gradient", "stalls", "real-tensors")


def build_page(findings: Sequence[Finding], command: str) -> Report:
    """The report of these findings."""
    sections = [*PRIMER, _ledger(findings), *map(_section, findings)]
    return Report(
        title="The √d_k ledger: what is said of attention scaling, measured",
        facts=_facts(findings),
        verdict=(_count(findings), *_answers(findings)),
        command=command,
        sections=tuple(sections),
    )


def _facts(findings: Sequence[Finding]) -> tuple[str, ...]:
    environment = observe_environment(torch.device("cpu"))
    seeds = [
        float(finding.seen.table()["replicates"].max()) for finding in findings if finding.claim.replicates == "seeds"
    ]
    facts = [plural(len(findings), "claim"), f"torch {environment['torch']}", environment["cpu"]]
    return (*facts, f"seeds a claim: {span(seeds)}") if seeds else tuple(facts)


def _count(findings: Sequence[Finding]) -> str:
    counts = Counter(finding.verdict for finding in findings)
    said = listed([f"{count} {verdict}" for verdict, count in counts.most_common()])
    changed = [finding.id for finding in findings if not finding.as_expected]
    return f"Of {plural(len(findings), 'claim')}: {said}." + (
        f" Another verdict than the ledger expects: {listed(changed)}." if changed else ""
    )


def _answers(findings: Sequence[Finding]) -> list[str]:
    by_id = {finding.id: finding for finding in findings}
    return [f"{by_id[id].sentence} {_told(by_id[id])}" for id in _ANSWER if id in by_id]


def _told(finding: Finding) -> str:
    return f"{finding.verdict.capitalize()}: {finding.judgement.summary}"


def _ledger(findings: Sequence[Finding]) -> Section:
    fields = ("claim", "verdict", "measured", "expected by folklore")
    rows: list[tuple[Cell, ...]] = [
        (finding.id, finding.sentence, finding.verdict, finding.judgement.summary, finding.claim.said)
        for finding in findings
    ]
    return Section(
        "ledger",
        "The ledger",
        (
            "Every verdict is computed from the measured values by a predicate; none is typed in. Confirmed: the "
            "values are what the sentence says. Refuted: they are not. Conditional: they are where the condition says.",
        ),
        (
            Table(
                "What is said, and what was measured.",
                (Field("id", "code"), *(Field(name, "text") for name in fields)),
                tuple(rows),
            ),
            Link(MEASURED, "Every measured value with its interval"),
        ),
    )


def _section(finding: Finding) -> Section:
    claim = finding.claim
    figure = Figure(
        name=finding.id,
        svg=draw(claim.plot, finding.seen),
        caption=f"{claim.plot.caption} Intervals: 95 %, over {claim.replicates}.",
        alt=f"Measured values for the claim {finding.id}.",
    )
    said = f"“{finding.sentence}” Source: {claim.source}. Folklore expects: {claim.said}."
    verdict = f"{finding.verdict.capitalize()}. {finding.judgement.condition}".strip()
    sentences = (said, verdict, finding.judgement.grounds)
    return Section(finding.id, finding.id, sentences, (figure,))

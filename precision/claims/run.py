"""Run claims: measure, judge, and compare the verdict with the one that the ledger expects."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from precision.claims.claim import Claim, Judgement, Verdict, claims, in_order
from precision.experiments.effort import Effort
from precision.experiments.evidence import Evidence
from precision.threads import one_thread


@dataclass(frozen=True)
class Finding:
    """A claim with what was measured and the verdict that followed."""

    id: str
    claim: Claim
    seen: Evidence
    judgement: Judgement
    seconds: float

    @property
    def sentence(self) -> str:
        """The claim, in our words."""
        return (self.claim.__doc__ or "").partition("\n")[0]

    @property
    def verdict(self) -> Verdict:
        """Computed from the values."""
        return self.judgement.verdict

    @property
    def as_expected(self) -> bool:
        """Whether the verdict is the one that the ledger expects."""
        return self.verdict == self.claim.expected


def run_claims(
    ids: Sequence[str] | None = None,
    quick: bool = False,
    capture: str = "minilm",
    listener: Callable[[str], None] = lambda id: None,
) -> list[Finding]:
    """The findings of these claims, in their order, or of all, topic by topic; `listener` hears each id as it starts.

    `capture` is a capture file, or the name of one that ships, for the claims about real tensors.
    Raises UsageError on an unknown id and on a file that is no capture.
    """
    effort = Effort(quick, capture)
    chosen = [(id, claims.build(id)) for id in (ids or in_order())]
    with one_thread(torch.device("cpu")):
        return [_find(id, claim, effort, listener) for id, claim in chosen]


def _find(id: str, claim: Claim, effort: Effort, listener: Callable[[str], None]) -> Finding:
    listener(id)
    start = time.perf_counter()
    seen = Evidence.of(claim.measure(effort))
    return Finding(id, claim, seen, claim.judge(seen), time.perf_counter() - start)


def to_json(findings: Sequence[Finding]) -> dict[str, Any]:
    """{"verdict": "pass" | "fail", "rows": [...]}; it fails when a verdict is not the expected one."""
    return {
        "verdict": "pass" if all(finding.as_expected for finding in findings) else "fail",
        "rows": [*map(_row, findings)],
    }


def _row(finding: Finding) -> dict[str, Any]:
    table = finding.seen.table()
    return {
        "id": finding.id,
        "claim": finding.sentence,
        "source": finding.claim.source,
        "said": finding.claim.said,
        "verdict": finding.verdict,
        "expected": finding.claim.expected,
        "condition": finding.judgement.condition,
        "grounds": finding.judgement.grounds,
        "seconds": round(finding.seconds, 3),
        "measured": table.astype(object).where(table.notna(), None).to_dict("records"),
    }

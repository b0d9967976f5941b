"""An explained kernel on a terminal: the answers first, then the plans, the costs and the failures."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from precision.explain.diagnosis import Diagnosis
from precision.explain.fingerprint import Fingerprint
from precision.records.narrow import Narrow
from precision.records.show import render as render_frame
from precision.records.table import say

_COSTS = {
    "tensor": "tensor", "group": "stage", "alone_rms": "rms, alone", "alone_max": "max, alone",
    "without_rms": "rms, all but it", "share": "share (Shapley)", "share_error": "standard error",
}  # fmt: skip


def render(found: Fingerprint, diagnoses: Sequence[Diagnosis], lines: int) -> None:
    """Print what was found, `lines` plans for each dtype."""
    for sentence in (*found.sentences, *(sentence for diagnosis in diagnoses for sentence in diagnosis.sentences)):
        say(sentence, indent="  ")
    print()
    plans = pd.DataFrame(found.rows).groupby("dtype", sort=False).head(lines)
    render_frame(plans, "table", Narrow(above=("dtype",)))
    for diagnosis in diagnoses:
        _render_costs(diagnosis)
        _render_failures(diagnosis)


def _render_costs(diagnosis: Diagnosis) -> None:
    if isinstance(found := diagnosis.attribution, str) or not found.tensors:
        return
    print()
    say(f"What each stage of the nearest plan contributes to the {found.error} error of {diagnosis.problem}")
    render_frame(found.frame[[*_COSTS]].rename(columns=_COSTS), "table", Narrow(above=("tensor",)))
    for tensor in found.tensors:
        rms, left = found.total[tensor].rms, found.closure(tensor)
        print(f"{tensor}: {rms:.3g} rms; the stages alone leave {left:+.1%} of the mean square")


def _render_failures(diagnosis: Diagnosis) -> None:
    for whose, failures in (("this kernel", diagnosis.failures), ("the nearest plan", diagnosis.plan_failures)):
        if failures and not isinstance(failures, str):
            print(f"\nWhat fails in {whose}, {diagnosis.problem.dtype}")
            for failure in failures:
                say(f"- {failure.sentence}", indent="  ")

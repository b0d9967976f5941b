"""The answer first: a few sentences, each made from the rows, each left out when the run cannot say it."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd

from precision.report.verdict.ablation import captured_incidence, cost_of_no_scale, drawn_incidence, lost_weights
from precision.report.verdict.methods import best_methods, input_cast, largest_error, mathematics
from precision.report.verdict.nonfinite import nonfinite_methods

_MAKERS: tuple[Callable[[pd.DataFrame], str | None], ...] = (
    drawn_incidence,
    captured_incidence,
    cost_of_no_scale,
    lost_weights,
    nonfinite_methods,
    best_methods,
    input_cast,
    mathematics,
)


def judge(rows: pd.DataFrame) -> tuple[str, ...]:
    """The verdict on the measured rows of a run (rows.py); at least one sentence, whatever the run holds."""
    if rows.empty:
        return ("Nothing was measured in this run.",)
    return tuple(sentence for make in _MAKERS if (sentence := make(rows))) or (largest_error(rows),)

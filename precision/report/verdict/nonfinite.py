"""Verdict: which methods give a NaN or an infinity, where the ablation does not say it."""

from __future__ import annotations

import pandas as pd

from precision.report.rows import groups_by
from precision.report.show import listed, plural
from precision.report.verdict.ablation import drawn_incidence

_MOST_NAMED = 3


def nonfinite_methods(rows: pd.DataFrame) -> str | None:
    """The methods with the most cases in which a row that has a finite right value is not finite."""
    if drawn_incidence(rows) is not None:
        return None
    broken = rows["rows_nonfinite"] > rows["rows_nan_due"]
    counts = [
        (int(broken[of_method.index].sum()), len(of_method), method)
        for (method,), of_method in groups_by(rows, "method")
    ]
    worst = sorted((each for each in counts if each[0]), key=lambda each: (-each[0] / each[1], each[2]))
    if not worst:
        return None
    named = listed([f"{method} in {bad} of {plural(cases, 'case')}" for bad, cases, method in worst[:_MOST_NAMED]])
    others = len(counts) - len(worst)
    rest = f"; {plural(others, 'method')} in none" if others else ""
    return f"Rows are NaN or infinite where the right ones are finite: {named}{rest}."

"""Section: the zoo, what each backend did with each case."""

from __future__ import annotations

import pandas as pd

from precision.report.blocks import Field, Section, Table
from precision.report.limits import worst_rows
from precision.report.show import count, listed, plural
from precision.report.source import Source
from precision.zoo.marks import MEANINGS, marks
from precision.zoo.table import RIGHT, zoo_reasons, zoo_table


def make_section(source: Source) -> Section | None:
    """Backend by case with a mark in each cell, and every reason; None when the run has no case of the zoo."""
    found = marks(source.frame)
    if found.empty:
        return None
    return Section("zoo", "The zoo", summarise(found), (_marks(source), _reasons(source)))


def summarise(found: pd.DataFrame) -> tuple[str, ...]:
    """The outcome of all marks in two sentences; none where there is no mark."""
    return () if found.empty else (_count(found), _count_wrong(found))


def _count(found: pd.DataFrame) -> str:
    return (
        f"{plural(found['case'].nunique(), 'case')} that people have met, on "
        f"{plural(found['method'].nunique(), 'method')}: {count((found['symbol'] == 'right').sum())} of "
        f"{plural(len(found), 'answer')} are right."
    )


def _count_wrong(found: pd.DataFrame) -> str:
    """Methods were not all asked the same, so that the number of questions stands beside each."""
    answered = found[found["symbol"].isin(MEANINGS)]
    wrong = ~answered["symbol"].isin(["right", "limits"])
    by_method = wrong.groupby(answered["method"], sort=False).agg(["sum", "size"]).sort_values("sum", kind="stable")
    each = [f"{wrong} of {size} by {method}" for method, wrong, size in by_method.itertuples()]
    return f"Wrong, of those that a method gave: {listed(each)}." if each else "No method gave an answer."


def _marks(source: Source) -> Table:
    table = zoo_table(source.frame)
    not_right = (~table.drop(columns=["case", "dtype"]).isin(["", RIGHT])).sum(axis=1)
    table, left_out = worst_rows(table, not_right)
    words = "; ".join(f"{RIGHT if symbol == 'right' else symbol}: {meaning}" for symbol, meaning in MEANINGS.items())
    case, dtype, *methods = table.columns
    marks = (Field(name, "text", narrow="marks") for name in methods)
    fields = (Field(case, "code", narrow="above"), Field(dtype, "text"), *marks)
    return Table(
        f"Marks, dtypes with the same marks on one line. {words}.{left_out}",
        fields,
        tuple(table.itertuples(index=False)),
        printed=True,
    )


def _reasons(source: Source) -> Table:
    reasons = zoo_reasons(source.frame)
    case, *others = reasons.columns
    fields = (Field(case, "code", narrow="above"), *(Field(name, "text") for name in others))
    return Table(
        "Why, for every mark that is not right, and what else is to be known.",
        fields,
        tuple(reasons.itertuples(index=False)),
        printed=True,
    )

"""What two cases of the zoo are there to tell of any kernel, right ones too. From the columns of a row alone."""

from __future__ import annotations

import pandas as pd

from precision.zoo.allowed import Row, value


def case_of(row: Row) -> str:
    """The case and its options."""
    return str(row["inputs"]).removeprefix("zoo/")


def text(row: Row, column: str) -> str:
    """A cell as text; empty where nothing was measured."""
    cell = row.get(column)
    return "" if cell is None or pd.isna(cell) else str(cell)


def remark(row: Row) -> str:
    """A sentence without its end, or nothing."""
    case = case_of(row)
    if case == "first-call" and (warm := value(row, "latency")):
        first = value(row, "latency_first")
        return f"the first call took {1e3 * first:.3g} ms, {first / warm:.0f} times a warm one; latency excludes it"
    if case == "assert-close" and (refused := value(row, "out_not_close")):
        share = refused / value(row, "out_compared")
        return f"torch.testing.assert_close refuses {share:.1%} of the elements by default"
    return ""

"""The zoo of a run as two tables: backend by case with a mark in each cell, and the reasons. Imports no torch."""

from __future__ import annotations

import pandas as pd

from precision.zoo.marks import marks

RIGHT = "ok"  # the shortest word for the mark that most cells have


def zoo_table(frame: pd.DataFrame) -> pd.DataFrame:
    """One line a case and its dtypes, one column a method; dtypes with the same marks throughout share a line.

    Right is `ok`, any other mark is its symbol, and what a method was not asked to solve is empty.
    """
    found = marks(frame)
    methods = list(dict.fromkeys(found["method"]))
    lines: dict[tuple[str, ...], list[str]] = {}
    for (case, dtype), group in found.groupby(["case", "dtype"], sort=False):
        symbols = dict(zip(group["method"], group["symbol"].replace("right", RIGHT), strict=True))
        cells = [symbols.get(method, "") for method in methods]
        lines.setdefault((str(case), *cells), []).append(str(dtype))
    rows = [(case, " ".join(dtypes), *cells) for (case, *cells), dtypes in lines.items()]
    return pd.DataFrame(rows, columns=["case", "dtype", *methods])


def zoo_reasons(frame: pd.DataFrame) -> pd.DataFrame:
    """Every mark but `right` with its reason: case, mark, methods, dtypes, reason; alike ones share a line."""
    found = marks(frame)
    found = found[found["symbol"] != "right"]
    lines = [
        (case, symbol, _joined(group["method"]), _joined(group["dtype"]), reason)
        for (case, symbol, reason), group in found.groupby(["case", "symbol", "reason"], sort=False)
    ]
    return pd.DataFrame(lines, columns=["case", "mark", "methods", "dtypes", "reason"])


def _joined(words: pd.Series[str]) -> str:
    return " ".join(dict.fromkeys(words))

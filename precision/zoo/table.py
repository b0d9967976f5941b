"""The zoo of a run as two tables: backend by case with a mark in each cell, and the reasons. Imports no torch."""

from __future__ import annotations

import pandas as pd

from precision.zoo.marks import marks

_SAME_REASON = ["case", "symbol", "reason"]
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
    """Every mark with a reason, and every warning: case, mark, methods, dtypes, reason; alike ones share a line."""
    found = marks(frame)
    found["symbol"] = found["symbol"].replace("right", RIGHT)
    lines = [
        (case, symbol, _joined(group["method"]), _joined(group["dtype"]), reason)
        for (case, symbol, reason), group in found[found["reason"] != ""].groupby(_SAME_REASON, sort=False)
    ]
    lines += [
        (case, "warning", "", _joined(group["dtype"]), warning)
        for (case, warning), group in found[found["warning"] != ""].groupby(["case", "warning"], sort=False)
    ]
    return pd.DataFrame(lines, columns=["case", "mark", "methods", "dtypes", "reason"])


def _joined(words: pd.Series[str]) -> str:
    return " ".join(dict.fromkeys(words))

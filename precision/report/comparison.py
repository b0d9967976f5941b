"""torch's SDPA backends side by side: one line a dtype and method, errors over every problem, cost on one setting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from precision.report.ratios import ratios_to_yardstick
from precision.report.rows import SETTING, dtypes_of, label_settings
from precision.report.show import ratio

# Eager rounds every stage to the dtype: what a plain kernel loses on the same problem.
ERROR_YARDSTICK = "eager"
GRADIENTS = ("dq", "dk", "dv")
# Fewer are compared well enough by the sections on latency and on gradients.
_FEWEST = 3


def is_comparison(frame: pd.DataFrame) -> bool:
    """Whether a run asks for several of torch's SDPA backends, here or not."""
    return frame.loc[frame["backend"].str.startswith("sdpa-"), "backend"].nunique() >= _FEWEST


def compare_backends(frame: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """One line a dtype and method, in the order of the run.

    `frame` is the run's without the zoo, holes included, and `rows` its measured ones (report/rows.py). The columns:
    dtype, method, asked, solved; ran (operators, none for plain operations, and the holes); p99_ulp (the median);
    to_eager and gradients_to_eager (median and worst of the rms error over eager's, as text); rows_nonfinite and
    gradients_nonfinite (sums); differentiated (problems with a backward pass).
    """
    cases = frame.drop_duplicates("case")
    rows = rows.assign(
        to_eager=_to_eager(rows, ["out"]),
        gradients_to_eager=_to_eager(rows, GRADIENTS),
        gradients_nonfinite=rows[[f"{name}_nonfinite" for name in GRADIENTS]].sum(axis=1),
    )
    lines = []
    for dtype in dtypes_of(cases):
        for method in dict.fromkeys(cases["method"]):
            asked = cases[(cases["dtype"] == dtype) & (cases["method"] == method)]
            if len(asked):
                lines.append(_line(asked, rows[(rows["dtype"] == dtype) & (rows["method"] == method)]))
    return pd.DataFrame(lines)


def timed_setting(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of the setting on which most cases were timed, with their ratios to MATH and the label of the setting.

    Methods are compared on one and the same problem; empty when nothing was timed.
    """
    timed = rows[rows["latency"] > 0]
    groups = [group for _, group in timed.groupby([*SETTING, "scale"], sort=False)]
    most = max(groups, key=len, default=timed)
    return most.assign(
        label=label_settings(timed)[most.index],
        ratio=ratios_to_yardstick(most, "latency_samples", most),
        backward_ratio=ratios_to_yardstick(most, "backward_latency_samples", most),
    )


def _line(asked: pd.DataFrame, solved: pd.DataFrame) -> dict[str, Any]:
    operators = dict.fromkeys(name.removeprefix("_scaled_dot_product_") for name in solved["ran"] if name)
    return {
        "dtype": asked["dtype"].iloc[0],
        "method": asked["method"].iloc[0],
        "asked": len(asked),
        "solved": len(solved),
        "ran": _said(asked, ", ".join(operators)),
        "p99_ulp": solved["out_p99_ulp"].median(),
        "to_eager": _span(solved["to_eager"]),
        "rows_nonfinite": solved["rows_nonfinite"].sum() if len(solved) else None,
        "differentiated": int((solved["backward"] == "ok").sum()),
        "gradients_p99_ulp": solved[[f"{name}_p99_ulp" for name in GRADIENTS]].max(axis=1).median(),
        "gradients_to_eager": _span(solved["gradients_to_eager"]),
        "gradients_nonfinite": solved["gradients_nonfinite"].sum() if (solved["backward"] == "ok").any() else None,
    }


def _said(asked: pd.DataFrame, operators: str) -> str | None:
    holes = asked.loc[asked["status"] != "ok", "status"].value_counts()
    return "; ".join(filter(None, [operators, *(f"{count} {status}" for status, count in holes.items())])) or None


def _to_eager(rows: pd.DataFrame, tensors: Sequence[str]) -> pd.Series[float]:
    """The rms error over eager's on the same problem, of the worst of the tensors; NaN where either has none."""
    names = [f"{tensor}_rms" for tensor in tensors]
    eager = rows[rows["method"] == ERROR_YARDSTICK].drop_duplicates("problem").set_index("problem")[names]
    beside = eager.where(eager > 0).reindex(rows["problem"]).set_index(rows.index)
    return (rows[names] / beside).max(axis=1)


def _span(ratios: pd.Series[float]) -> str | None:
    known = ratios.dropna()
    return f"{ratio(known.median())} ({ratio(known.max())})" if len(known) else None

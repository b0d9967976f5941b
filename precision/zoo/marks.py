"""Marks: what one backend did with one case, in a word, and why. From the columns of rows alone; imports no torch."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from precision.zoo.allowed import Row, judge_error, logit_rounding, value
from precision.zoo.remarks import case_of, remark, text

# Every symbol that a measured row can have; a hole has its status as its symbol.
MEANINGS = {
    "right": "to within the rounding of weights and output to the dtype",
    "limits": "right within the format's limits: off by what rounding every stage to the dtype may do",
    "wrong": "off by more than that",
    "NaN": "NaN or infinite where the right value is finite",
    "NaN lost": "finite where the right value is NaN",
    "not 0": "a row without a key is not 0, or its gradients are not finite",
    "silent zero": "wrong and finite, although scores overflowed: no NaN tells of it",
    "weights lost": "wrong, since weights that matter round to 0",
}
_GRADIENTS = ("dq", "dk", "dv")
# The backend that same-dtype errors are held against.
_YARDSTICK = "eager"


@dataclass(frozen=True)
class Mark:
    """A symbol (a key of MEANINGS, or the status of a hole) and its reason, or what else there is to say."""

    symbol: str
    reason: str = ""


def marks(frame: pd.DataFrame) -> pd.DataFrame:
    """The zoo's rows of a run, one line each: case, dtype, method, symbol, reason, warning; in the order of the run.

    The warning is about the mask, whatever the method did with it.
    """
    zoo = frame[frame["inputs"].str.startswith("zoo/")].drop_duplicates("case")
    rows: list[Row] = [dict(zip(zoo.columns, cells, strict=True)) for cells in zoo.itertuples(index=False, name=None)]
    eager = {row["problem"]: row for row in rows if row["method"] == _YARDSTICK and value(row, "out_compared")}
    found = [(row, mark(row, eager.get(row["problem"]))) for row in rows]
    lines = [
        (case_of(row), row["dtype"], row["method"], given.symbol, given.reason, text(row, "mask_warning"))
        for row, given in found
    ]
    return pd.DataFrame(lines, columns=["case", "dtype", "method", "symbol", "reason", "warning"])


def mark(row: Row, yardstick: Row | None = None) -> Mark:
    """The mark of one row; `yardstick` is the row of eager on the same problem, where it was measured."""
    if row["status"] != "ok":
        return Mark(str(row["status"]), str(row["note"]).splitlines()[0])  # some exceptions say pages
    given = _judge_masked(row) or _judge_nan(row) or _judge_gradients(row) or _judge_finite(row, yardstick)
    return Mark(given.symbol, "; ".join(filter(None, (given.reason, remark(row)))))


def _judge_masked(row: Row) -> Mark | None:
    """Rows without a key are in no other count, so that what happens there is never taken for an overflow."""
    wrong, masked = value(row, "rows_masked_wrong"), value(row, "rows_masked")
    if not masked:
        return None
    spoilt = _spoilt_gradients(row)
    if wrong:
        reason = f"{wrong:.0f} of {masked:.0f} rows without a key are not 0: a fault of masking"
        return Mark("not 0", f"{reason}; not finite in the gradients: {spoilt}" if spoilt else reason)
    return Mark("not 0", f"{spoilt} are not finite, for rows without a key") if spoilt else None


def _judge_nan(row: Row) -> Mark | None:
    due, lost = value(row, "rows_nan_due"), value(row, "rows_nan_lost")
    if lost:
        return Mark("NaN lost", f"{lost:.0f} of {due:.0f} rows that must be NaN are finite")
    undue = value(row, "rows_nonfinite") - due
    if undue > 0:
        return Mark("NaN", f"{undue:.0f} of {value(row, 'rows'):.0f} rows: {_cause_of_nan(row)}")
    return None


def _judge_gradients(row: Row) -> Mark | None:
    """Gradients that are not finite although the output is, and every input too."""
    if value(row, "rows_nonfinite") or value(row, "rows_nan_due") or not (spoilt := _spoilt_gradients(row)):
        return None
    return Mark("NaN", f"the output is finite, but {spoilt} are not")


def _spoilt_gradients(row: Row) -> str:
    counts = {name: value(row, f"{name}_nonfinite") for name in _GRADIENTS}
    return ", ".join(f"{count:.0f} elements of {name}" for name, count in counts.items() if count)


def _cause_of_nan(row: Row) -> str:
    before, after = value(row, "scores_over_before_scale"), value(row, "scores_over_after_scale")
    if after:
        return f"{before:.0f} scores overflow before the scale and {after:.0f} after it"
    if before and "scale=before" not in str(row["method"]):
        return f"{before:.0f} scores overflow before the scale, none after it"
    if not row["max_subtraction"] and value(row, "rows_sum_inf_unshifted"):
        return "the exponentials overflow, since no maximum is subtracted"
    if not row["max_subtraction"]:
        return "all exponentials of a row underflow, since no maximum is subtracted"
    return "none that the exact scores show"


def _judge_finite(row: Row, yardstick: Row | None) -> Mark:
    judgement = judge_error(row, yardstick)
    if judgement == "right":
        return Mark("right")
    off = f"relative error {value(row, 'out_rel_l2'):.2g}, largest {value(row, 'out_max_abs'):.3g}"
    if judgement == "limits":
        return Mark("limits", f"{off}: as when every stage is rounded to {row['dtype']}")
    if over := value(row, "scores_over_before_scale") or value(row, "scores_over_after_scale"):
        return Mark("silent zero", f"{off}: {over:.0f} scores overflow, and the output is finite all the same")
    if (moved := logit_rounding(row)) >= 1:
        return Mark("wrong", f"{off}: one rounding to {row['dtype']} moves the scores by up to {moved:.3g}")
    if mass := value(row, "weights_zero_mass_max"):
        return Mark("weights lost", f"{off}: up to {mass:.2g} of a row's weight of 1 rounds to 0 in {row['dtype']}")
    return Mark("wrong", f"{off}: more than rounding can do")

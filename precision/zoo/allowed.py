"""How far from the reference a finite output may be, from the columns of a row alone. Imports no torch.

Two kernels are thought of, and what each may lose is derived:

* one with fp32 scores, state and sums that rounds weights and output to the dtype (`wide_state`);
* one that rounds every stage to the dtype, as eager does: twice what eager itself loses on the same problem, which is
  FlashAttention's rule, since a right kernel may round as many stages at other places; without a row of eager the
  first-order bound.

The second says something only while the scores fit the dtype (`fits`). Beyond that eager is what is in question.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

import pandas as pd

from precision.formats import find_format

Row = Mapping[str, Any]
Judgement = Literal["right", "limits", "wrong"]

_FP32 = find_format("fp32").unit_roundoff
_YARDSTICK_FACTOR = 2.0
# Roundings of a score: q, k, product and scale, each relative to q.k; mask and shift, relative to the logit.
_PRODUCT_ROUNDINGS, _LOGIT_ROUNDINGS = 4, 2


def value(row: Row, column: str) -> float:
    """A cell as a number; 0 where nothing was measured."""
    cell = row.get(column)
    return 0.0 if cell is None or pd.isna(cell) else float(cell)


def judge_error(row: Row, yardstick: Row | None = None) -> Judgement:
    """Whether the finite elements of a row are right as with a wide state, right as with rounded stages, or wrong.

    `yardstick` is the row of eager on the same problem, where there is one.
    """
    error, wide = value(row, "out_rel_l2"), wide_state(row)
    if not fits(row):
        return "right" if error <= wide else "wrong"
    if value(row, "out_max_abs") > _largest(row, yardstick):
        return "wrong"
    if error <= wide:
        return "right"
    return "limits" if error <= wide + _every_stage(row, yardstick) else "wrong"


def fits(row: Row) -> bool:
    """Whether the scores fit the dtype: none overflows, no weight is lost, and one rounding moves a logit by < 1."""
    return (
        value(row, "scores_over_before_scale") == 0
        and value(row, "scores_over_after_scale") == 0
        and value(row, "weights_zero_mass_max") == 0
        and logit_rounding(row) < 1
    )


def logit_rounding(row: Row) -> float:
    """How far one rounding to the dtype moves the largest score, as it stands before or after scale and mask."""
    return _roundoff(row) * max(value(row, "logit_max"), _scaled_products(row))


def wide_state(row: Row) -> float:
    """The relative error, in the 2-norm, of a kernel with an fp32 state.

    Weights and output are each rounded once, at most u relative. In fp32, a score of d_k products is off by
    u_32 sqrt(d_k) times its size, and two sums over the keys by u_32 sqrt(2 kv_len), each in root mean square (Higham
    & Mary, "A new approach to probabilistic rounding error analysis", 2019, theorem 2.4). The size of the scores is
    taken as their standard deviation. Scores that fp32 does not know to within 1 give no allowance: then either one
    key stands out by more than that, or the output is wrong.
    """
    u_32 = min(_FP32, _roundoff(row))
    scores = u_32 * math.sqrt(value(row, "d_k")) * value(row, "logit_std")
    sums = u_32 * math.sqrt(2 * value(row, "kv_len"))
    return 2 * _roundoff(row) + sums + (scores if scores < 1 else 0.0)


def _largest(row: Row, yardstick: Row | None) -> float:
    """The largest absolute error: a small 2-norm can hide one wild element."""
    if yardstick is None or value(row, "out_rel_l2") == 0:
        return math.inf
    size = value(row, "out_rms") / value(row, "out_rel_l2")  # root mean square of the right output
    extreme = size * math.sqrt(2 * math.log(max(value(row, "out_compared"), 2)))  # of so many normal elements
    return _YARDSTICK_FACTOR * value(yardstick, "out_max_abs") + wide_state(row) * extreme


def _every_stage(row: Row, yardstick: Row | None) -> float:
    """The relative error, in the 2-norm, that rounding every stage adds."""
    if yardstick is not None:
        return _YARDSTICK_FACTOR * value(yardstick, "out_rel_l2")
    moved = _PRODUCT_ROUNDINGS * _scaled_products(row) + _LOGIT_ROUNDINGS * value(row, "logit_max")
    return _roundoff(row) * 2 * moved  # of a weight: its own score, and the mean of the row's


def _roundoff(row: Row) -> float:
    return find_format(str(row["dtype"])).unit_roundoff


def _scaled_products(row: Row) -> float:
    return value(row, "raw_max") * abs(value(row, "scale_value"))

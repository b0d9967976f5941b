"""The mean signed error: 0 for rounding to nearest, -1/2 ulp for truncation, which no largest error shows.

Errors within a row share its weights and its sum, and those of a key are shared by all rows. So the rows are what is
counted, and no more of them than there are keys: 6 standard errors of their mean are allowed, of which the
sqrt(1/12) ulp of rounding is the least.

What moves all outputs the same way is added: an error of the scale. The scale and log2(e) may each be rounded to fp32.
Where q is scaled in its own dtype, each of its 2^(p-1) significands is rounded in its own way, and their mean error of
u / sqrt(3 2^(p-1)) is one of the scale; 6 of it are allowed.
"""

from __future__ import annotations

import math

from torch import Tensor

from precision.checking.allowed import ROUNDING_STD, rms
from precision.checking.truth import Truth
from precision.numerics.metrics import ulp

BIAS_DEVIATIONS = 6.0
_SCALE_ROUNDINGS = 2
_FEWEST_ROWS = 30  # below that the spread of the rows' means says too little


def measure_bias(tensor: str, error: Tensor, truth: Truth) -> tuple[float, float] | None:
    """Mean error away from 0 in ulp, over elements that are not small, and what it may be; None where neither tells."""
    if not truth.problem.shows_bias:
        return None
    if tensor != "out" and truth.sum_roundoff == truth.format.unit_roundoff:
        return None  # the many sums of a gradient in the same format have errors of many ulp
    right = truth.values[tensor]
    spacing = ulp(right, truth.format)
    large = right.abs() >= rms(right)
    rows = _row_means(error / spacing * right.sign(), large)
    if len(rows) < _FEWEST_ROWS:
        return None
    k = truth.call.x.k
    independent = min(len(rows), k.shape[0] * k.shape[1] * k.shape[2])
    deviation = max(float(rows.std()) / math.sqrt(independent), ROUNDING_STD / math.sqrt(int(large.sum())))
    allowed = BIAS_DEVIATIONS * deviation
    slope = _row_means(truth.scale_slope[tensor] / spacing * right.sign(), large)
    return float(rows.mean()), allowed + _scale_error(truth) * abs(float(slope.mean()))


def _scale_error(truth: Truth) -> float:
    """The relative error of the scale that a right kernel may have."""
    scaled_q = truth.format.unit_roundoff / math.sqrt(3 * 2 ** (truth.format.significand_bits - 1))
    return _SCALE_ROUNDINGS * truth.sum_roundoff + BIAS_DEVIATIONS * scaled_q


def _row_means(values: Tensor, where: Tensor) -> Tensor:
    """The mean of each row that has elements to count."""
    count = where.sum(-1)
    return values.where(where, 0.0).sum(-1)[count > 0] / count[count > 0]

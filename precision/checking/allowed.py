"""How far from the right value each element of a tensor may be.

The sum of

1. twice the largest error of same-dtype eager on the same problem, pooled over several inputs. Eager rounds every
   stage to the dtype. A right kernel may round other stages, as often again (q scaled first, sqrt(scale) on q and on
   k): sqrt(2) in the standard deviation. Two samples of a maximum differ by about as much again. It is the factor of
   FlashAttention's own tests;
2. what sums in fp32 may lose when terms are added one after the other (`bounds.accumulation`), for eager adds in
   blocks: 6 standard deviations, which one element of a right kernel in 5e8 exceeds. For gradients also what is lost
   when they are added up in the dtype, chunk by chunk, as autograd does and torch's FLASH;
3. one rounding of the output, half an ulp;
4. where eager's error is no sample (it is 0, as for one key, or a matter of a few roundings), the first-order bound of
   a kernel that rounds every stage. Beyond the format, where eager may be far off or not finite, that bound is all.

The root mean square of the error may be twice eager's and one standard deviation of 2 and of 3.
"""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor

from precision.checking.truth import Truth, Yardstick
from precision.numerics.bounds import Sizes
from precision.numerics.metrics import ulp

YARDSTICK_FACTOR = 2.0
SUM_DEVIATIONS = 6.0
_KEPT = 2**14  # all kernels of a process share the truths, and so what is allowed there
ROUNDING_STD = math.sqrt(1 / 12)  # of a rounding to nearest, in ulp


@lru_cache(maxsize=_KEPT)
def allowed_errors(tensor: str, truth: Truth, yardstick: Yardstick) -> Tensor:
    """The largest error that each element may have, of the shape of the tensor."""
    rounding = SUM_DEVIATIONS * _sum_spread(tensor, truth) + ulp(truth.values[tensor], truth.format) / 2
    allowed = YARDSTICK_FACTOR * yardstick.max_abs + rounding
    if truth.problem.beyond:
        return torch.minimum(allowed, _first_order(tensor, truth) + rounding)
    return allowed + _first_order(tensor, truth) if _needs_bound(truth, yardstick) else allowed


@lru_cache(maxsize=_KEPT)
def allowed_rms(tensor: str, truth: Truth, yardstick: Yardstick) -> float:
    """The largest root mean square of the error; infinite beyond the format, where each element has its bound."""
    if truth.problem.beyond:
        return math.inf
    allowed = YARDSTICK_FACTOR * yardstick.rms + rms(_sum_spread(tensor, truth))
    allowed += ROUNDING_STD * rms(ulp(truth.values[tensor], truth.format))
    return allowed + rms(_first_order(tensor, truth)) if _needs_bound(truth, yardstick) else allowed


def rms(values: Tensor) -> float:
    """Root mean square, 0 of nothing."""
    return math.sqrt(float(values.square().mean())) if values.numel() else 0.0


def _needs_bound(truth: Truth, yardstick: Yardstick) -> bool:
    return yardstick.max_abs == 0 or truth.problem.few_roundings


def _sum_spread(tensor: str, truth: Truth) -> Tensor:
    """Standard deviation of the error of sums; one rounding has u / sqrt(3)."""
    spread = _size(truth.accumulation, tensor) / math.sqrt(3)
    if tensor == "out" or truth.problem.beyond:
        return spread
    return spread + _size(truth.chunked, tensor) / math.sqrt(3)


def _first_order(tensor: str, truth: Truth) -> Tensor:
    return _size(truth.first_order, tensor)


def _size(sizes: Sizes, tensor: str) -> Tensor:
    found = getattr(sizes, tensor)
    assert isinstance(found, Tensor)
    return found

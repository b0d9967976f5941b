"""The rule: no element of a tensor, nor their root mean square, nor their mean may be off by more than allowed."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from precision.checking.allowed import allowed_errors, allowed_rms, rms
from precision.checking.bias import measure_bias
from precision.checking.significance import narrower_format
from precision.checking.truth import Truth, Values, Yardstick


@dataclass(frozen=True)
class Judgement:
    """One tensor of one call against the rule; errors are absolute, the bias is in ulp."""

    tensor: str
    max_abs: float
    max_allowed: float  # at the element that is furthest beyond what is allowed
    rms: float
    rms_allowed: float
    bias: float | None  # None where there are too few rows to tell
    bias_allowed: float | None
    not_finite: int  # elements that are NaN or infinite and should not be
    faults: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """Whether nothing is wrong."""
        return not self.faults


def judge(found: Values, truth: Truth, yardsticks: dict[str, Yardstick]) -> list[Judgement]:
    """Every tensor that a kernel gave for one call, those without an element left out."""
    tensors = [tensor for tensor in found.tensors if tensor in truth.values.tensors and found[tensor].numel()]
    return [judge_tensor(tensor, found[tensor], truth, yardsticks[tensor]) for tensor in tensors]


def judge_tensor(tensor: str, found: Tensor, truth: Truth, yardstick: Yardstick) -> Judgement:
    """One tensor, of the shape of the right one."""
    allowed = allowed_errors(tensor, truth, yardstick)
    rms_allowed = allowed_rms(tensor, truth, yardstick)
    error = truth.error(tensor, found)
    ratio = (error.abs() / allowed).nan_to_num(0.0, math.inf)  # 0 / 0 where a value must be exact and is
    worst = torch.unravel_index(ratio.argmax(), ratio.shape)
    not_finite = int(error.isinf().sum())
    bias = None if not_finite else measure_bias(tensor, error, truth)
    verdicts = {
        "not finite": not_finite > 0,
        "max": bool((ratio > 1).any()),
        "rms": rms(error) > rms_allowed,
        "coarse": narrower_format(found, truth) is not None,
        "bias": bias is not None and abs(bias[0]) > bias[1],
    }
    return Judgement(
        tensor,
        max_abs=float(error[worst].abs()),
        max_allowed=float(allowed[worst]),
        rms=rms(error),
        rms_allowed=rms_allowed,
        bias=None if bias is None else bias[0],
        bias_allowed=None if bias is None else bias[1],
        not_finite=not_finite,
        faults=tuple(name for name, failed in verdicts.items() if failed),
    )

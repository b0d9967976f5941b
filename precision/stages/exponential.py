"""Exponentials of the kernels: exactly 2^x, or with a polynomial where the hardware or the library has one.

`exp2`: 2^x. `poly`: 2^floor(x) times a polynomial with c0 = 1 in the fraction, the software exponential of Zadouri et
al., "FlashAttention-4" (2026). `fast`: x less a cubic in its fraction, read as the exponent and the significand of one
fp32 number (Malossi et al., "Fast Exponential Computation on SIMD Architectures", 2015), which torch's fused CPU kernel
takes for fp16 and bf16; what is left of the significand are 17 bits.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import linprog
from torch import Tensor

LOG2_E = 1.0 / math.log(2.0)

_POINTS = 2001  # where the error of a fit is held down; between them it exceeds that by a millionth of itself
_BEYOND = 1100.0  # 2^1100 and 2^-1100 are infinity and 0 in fp64
_BIAS = 127.0  # of the exponent of fp32
_CUBIC = 3


def two_to_the(x: Tensor, kind: Literal["exp2", "poly", "fast"], degree: int) -> Tensor:
    """2^x (float64, any shape) by one of the kinds; the degree is that of `poly`."""
    if kind == "exp2":
        return x.exp2()
    x = x.clamp(-_BEYOND, _BEYOND)
    whole = x.floor()
    fraction = x - whole
    if kind == "poly":
        return torch.ldexp(_evaluate(fit_relative(degree), fraction), whole)
    as_bits = (whole + _evaluate(fit_absolute(_CUBIC), fraction) + (_BIAS - 1.0)).float().double()
    exponent = as_bits.floor()
    return torch.ldexp(1.0 + as_bits - exponent, exponent - _BIAS).masked_fill_(exponent < 1.0, 0.0)


def _evaluate(coefficients: tuple[float, ...], x: Tensor) -> Tensor:
    value = torch.full_like(x, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        value.mul_(x).add_(coefficient)
    return value


@cache
def fit_relative(degree: int) -> tuple[float, ...]:
    """c0 = 1, c1, ..., of the polynomial on [0, 1] whose largest error relative to 2^x is smallest."""
    x = _points()
    columns = x[:, None] ** np.arange(1, degree + 1) / np.exp2(x)[:, None]
    return (1.0, *_fit(columns, 1.0 - np.exp2(-x)))


@cache
def fit_absolute(degree: int) -> tuple[float, ...]:
    """c0, c1, ..., of the polynomial on [0, 1] whose largest difference from 2^x is smallest."""
    x = _points()
    return tuple(_fit(x[:, None] ** np.arange(degree + 1), np.exp2(x)))


def _points() -> NDArray[np.float64]:
    """Chebyshev points of [0, 1]."""
    return (1.0 - np.cos(np.linspace(0.0, np.pi, _POINTS))) / 2.0


def _fit(columns: NDArray[np.float64], wanted: NDArray[np.float64]) -> list[float]:
    """The combination of columns (points, terms) that is nearest to what is wanted (points,) in the largest error.

    A linear programme. It is solved for the change from the least-squares fit, in units of that one's largest error,
    so that the solver's tolerance is relative.
    """
    start = np.linalg.lstsq(columns, wanted)[0]
    error = columns @ start - wanted
    unit = np.abs(error).max()
    ones = np.ones((len(columns), 1))
    best = linprog(
        c=[0.0] * len(start) + [1.0],
        A_ub=np.block([[columns, -ones], [-columns, -ones]]),
        b_ub=np.concatenate([-error, error]) / unit,
        bounds=[(None, None)] * (len(start) + 1),
    )
    return [float(c) for c in start + unit * best.x[:-1]]

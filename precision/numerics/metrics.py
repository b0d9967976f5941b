"""Errors of a tensor against its fp64 reference, absolute, relative and in units in the last place (ulp)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from precision.formats import Format

_EXPONENT_BITS = 0x7FF0_0000_0000_0000  # of binary64
# rtol and atol by dtype, as the documentation of torch.testing.assert_close has them (torch 2.13); others: 0.
_CLOSE = {"fp64": (1e-7, 1e-7), "fp32": (1.3e-6, 1e-5), "fp16": (1e-3, 1e-5), "bf16": (1.6e-2, 1e-5)}


@dataclass(frozen=True)
class Errors:
    """Over the elements that were compared: those whose value and reference are both finite.

    One ulp is the spacing of the format's numbers at the reference value (Muller et al., Handbook of
    Floating-Point Arithmetic, section 2.3, Goldberg's definition extended to subnormals).
    """

    max_abs: float
    rms: float
    rel_l2: float  # ||x - reference||_2 / ||reference||_2; infinite when only the reference is 0
    max_ulp: float
    median_ulp: float
    p99_ulp: float
    bias_ulp: float  # mean of the signed error in ulp: 0 for unbiased rounding, -1/2 sign(x) for truncation
    not_close: int  # elements that torch.testing.assert_close refuses at its default tolerances, right or wrong
    worst: tuple[int, ...]  # index of the element with the largest absolute error
    compared: int


def ulp(x: Tensor, format: Format) -> Tensor:
    """Spacing of the format's numbers at |x| (float64, any shape); the subnormal spacing near 0."""
    power = (x.view(torch.int64) & _EXPONENT_BITS).view(torch.float64)  # 2^e for |x| = m 2^e, 1 <= m < 2
    power = power.clamp(2.0**format.min_exponent, 2.0**format.max_exponent)
    return power * 2.0 ** (1 - format.significand_bits)


def measure_errors(x: Tensor, reference: Tensor, format: Format, rows: Tensor | None = None) -> Errors | None:
    """Errors of x against the fp64 reference of the same shape; None when no element can be compared.

    `rows` (the shape without its last dimension, bool) says which rows count: fully masked rows have no
    meaningful relative error and are judged apart.
    """
    value = x.double()
    comparable = torch.isfinite(value) & torch.isfinite(reference)
    if rows is not None:
        comparable &= rows[..., None]
    compared = int(comparable.sum())
    if compared == 0:
        return None
    if compared == comparable.numel():  # the usual case, without the gathers
        true, error, place = reference.flatten(), (value - reference).flatten(), None
    else:
        true, error, place = (
            reference[comparable],
            (value - reference)[comparable],
            comparable.flatten().nonzero()[:, 0],
        )
    magnitude = error.abs()
    in_ulp = error / ulp(true, format)
    ulp_magnitude = in_ulp.abs()
    worst = magnitude.argmax() if place is None else place[magnitude.argmax()]
    rtol, atol = _CLOSE.get(format.name, (0.0, 0.0))
    norm, error_norm = float(true.norm()), float(error.norm())
    return Errors(
        max_abs=float(magnitude.max()),
        rms=float(error.square().mean().sqrt()),
        rel_l2=error_norm / norm if norm else (math.inf if error_norm else 0.0),
        max_ulp=float(ulp_magnitude.max()),
        median_ulp=_quantile(ulp_magnitude, 50),
        p99_ulp=_quantile(ulp_magnitude, 99),
        bias_ulp=float(in_ulp.mean()),
        not_close=int((magnitude > atol + rtol * true.abs()).sum()),
        worst=tuple(int(i) for i in torch.unravel_index(worst, x.shape)),
        compared=compared,
    )


def _quantile(values: Tensor, percent: int) -> float:
    """The smallest value that at least so many percent of the values do not exceed."""
    rank = -(-percent * values.numel() // 100)
    return float(values.kthvalue(max(rank, 1)).values)

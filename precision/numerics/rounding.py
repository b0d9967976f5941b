"""Rounding from fp64 into a format, once.

torch converts double to float16 or bfloat16 by way of float32, which rounds twice: 1 + 2^-11 + 2^-40 becomes
1.0 instead of 1 + 2^-10; and no library rounds toward zero or stochastically. Here x is divided by the spacing of
the format's numbers at x, a power of two, so that one rounding to an integer is the rounding to the format; all
else is exact.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Generator, Tensor

from precision.formats import Format, find_format
from precision.numerics.metrics import ulp

Mode = Literal["nearest", "truncate", "stochastic"]


def torch_dtype(name: str) -> torch.dtype:
    """The torch dtype of a format: `fp16` gives torch.float16."""
    dtype = getattr(torch, find_format(name).torch_name)
    assert isinstance(dtype, torch.dtype)
    return dtype


def round_to(x: Tensor, format_name: str) -> Tensor:
    """x (float64, any shape) rounded once, to nearest with ties to even, into the named format and its dtype."""
    return round_values(x, find_format(format_name)).to(torch_dtype(format_name))


def round_values(x: Tensor, format: Format, mode: Mode = "nearest", generator: Generator | None = None) -> Tensor:
    """x (float64, any shape) rounded once to numbers of the format, still as float64.

    `nearest` takes ties to even. `truncate` goes toward zero and never overflows. `stochastic` goes to either
    neighbour with the probability that makes the expectation x, by the generator. Beyond the largest number lies
    infinity, or, in a format without one, the largest number again (as torch and the GPU's saturating conversion
    have it). Zeros keep their sign, NaN stays NaN.
    """
    if format.name == "fp64":
        return x
    if format.name == "fp32" and mode == "nearest":
        return x.float().double()  # the one rounding that torch does once
    spacing = ulp(x, format)
    scaled = x / spacing
    if mode == "nearest":
        rounded = scaled.round_()
    elif mode == "truncate":
        rounded = scaled.trunc_()
    else:
        lower = scaled.floor()
        chance = torch.rand(x.shape, generator=generator, dtype=x.dtype, device=x.device)
        rounded = (lower + (chance < scaled - lower)).copysign_(x)
    return _limit_range(rounded.mul_(spacing), x, format, mode)


def _limit_range(rounded: Tensor, x: Tensor, format: Format, mode: Mode) -> Tensor:
    """What is beyond the largest number, which rounding as if the exponents had no end gives, in place."""
    if rounded.numel() == 0:
        return rounded
    low, high = rounded.aminmax()
    if max(-float(low), float(high)) <= format.largest:  # false when there is a NaN
        return rounded
    if not format.has_infinity:
        return rounded.clamp_(-format.largest, format.largest)
    if mode == "truncate":
        return rounded.clamp_(-format.largest, format.largest).where(x.isfinite(), x)
    return rounded.masked_fill_(rounded > format.largest, math.inf).masked_fill_(rounded < -format.largest, -math.inf)

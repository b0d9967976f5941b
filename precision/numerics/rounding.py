"""Rounding from fp64 into a format, once.

torch converts double to float16 or bfloat16 by way of float32, which rounds twice: 1 + 2^-11 + 2^-40 becomes
1.0 instead of 1 + 2^-10. Here the step to float32 rounds to odd, which makes the second rounding see on which
side of a tie the value lay (Boldo & Melquiond, "Emulation of a FMA and correctly rounded sums", 2008).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from precision.formats import find_format


def torch_dtype(name: str) -> torch.dtype:
    """The torch dtype of a format: `fp16` gives torch.float16."""
    dtype = getattr(torch, find_format(name).torch_name)
    assert isinstance(dtype, torch.dtype)
    return dtype


def round_to(x: Tensor, format_name: str) -> Tensor:
    """x (float64, any shape) rounded once, to nearest with ties to even, into the named format."""
    dtype = torch_dtype(format_name)
    if dtype in (torch.float64, torch.float32):
        return x.to(dtype)
    return _to_float32_odd(x).to(dtype)


def _to_float32_odd(x: Tensor) -> Tensor:
    nearest = x.to(torch.float32)
    inexact = nearest.double() != x
    even = (nearest.view(torch.int32) & 1) == 0
    # An inexact even neighbour is replaced by the odd one on the other side of x.
    toward_x = torch.where(x > nearest.double(), math.inf, -math.inf).to(torch.float32)
    return torch.where(inexact & even, torch.nextafter(nearest, toward_x), nearest)

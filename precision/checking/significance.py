"""How many significant bits a tensor really has: one that went through a narrower format has no more than that.

In the noise of a gradient such a rounding shows in no error, but on random inputs not every element of a right tensor
is a number of the next narrower format.
"""

from __future__ import annotations

import torch
from torch import Tensor

from precision.checking.truth import Truth
from precision.formats import FORMATS, Format


def narrower_format(found: Tensor, truth: Truth) -> Format | None:
    """The narrowest format that holds every element's significand, if it is narrower than the tensor's own."""
    if not (truth.problem.shows_bias and found.isfinite().all() and found.any()):
        return None
    narrower = [f for f in FORMATS.values() if f.significand_bits < truth.format.significand_bits]
    significand = torch.frexp(found.double()).mantissa
    for format in sorted(narrower, key=lambda f: f.significand_bits):
        shifted = significand * 2**format.significand_bits
        if bool((shifted == shifted.round()).all()):
            return format
    return None

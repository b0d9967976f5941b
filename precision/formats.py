"""Number formats: what a dtype can hold. Plain numbers; this module imports no torch.

Every figure follows from the number of significand bits p and the exponent range, as IEEE 754-2019
(binary16, binary32, binary64), the bfloat16 and TensorFloat-32 definitions and the Open Compute Project's "8-bit
Floating Point Specification" (2023: E4M3, E5M2) give them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from precision.errors import UsageError, nearest


@dataclass(frozen=True)
class Format:
    """A binary floating-point format with round-to-nearest-even and gradual underflow."""

    name: str
    torch_name: str
    significand_bits: int  # p, the implicit bit included
    max_exponent: int  # exponent of the largest finite number
    min_exponent: int  # exponent of the smallest normal number
    has_infinity: bool = True  # without one, the code above the largest number is NaN, and overflow saturates

    @property
    def unit_roundoff(self) -> float:
        """u = 2^-p: the largest relative error of one rounding in the normal range."""
        return 2.0**-self.significand_bits

    @property
    def largest(self) -> float:
        """The largest finite number, (2 - 2^(1-p)) 2^emax, and one step less where NaN takes the last code."""
        last_code = 1 if self.has_infinity else 2
        return (2.0 - last_code * 2.0 ** (1 - self.significand_bits)) * 2.0**self.max_exponent

    @property
    def overflow_threshold(self) -> float:
        """The smallest magnitude that rounds to infinity: half an ulp above the largest (65520 in fp16)."""
        if not self.has_infinity or self.max_exponent >= 1023:  # fp64: the threshold is beyond Python's float
            return math.inf
        return (2.0 - 2.0**-self.significand_bits) * 2.0**self.max_exponent

    @property
    def smallest(self) -> float:
        """The smallest positive (subnormal) number; also the spacing of numbers below the normal range."""
        return 2.0 ** (self.min_exponent - self.significand_bits + 1)

    @property
    def exp_overflow(self) -> float:
        """exp(x) rounds to infinity from this x on: ln of the overflow threshold."""
        if not self.has_infinity:
            return math.inf
        if math.isinf(self.overflow_threshold):  # ln of the threshold lies between ln largest and the next float
            return math.nextafter(math.log(self.largest), math.inf)
        return math.log(self.overflow_threshold)

    @property
    def exp_underflow(self) -> float:
        """exp(x) rounds to zero up to this x: ln of half the smallest subnormal, a tie that goes to even."""
        return (self.min_exponent - self.significand_bits) * math.log(2.0)


FORMATS = {
    format.name: format
    for format in (
        Format("fp64", "float64", 53, 1023, -1022),
        Format("fp32", "float32", 24, 127, -126),
        Format("fp16", "float16", 11, 15, -14),
        Format("bf16", "bfloat16", 8, 127, -126),
    )
}

# Formats that a stage of a kernel may round to, beside those that tensors of a problem may have.
STAGE_FORMATS = FORMATS | {
    format.name: format
    for format in (
        Format("tf32", "float32", 11, 127, -126),  # held in float32
        Format("e4m3", "float8_e4m3fn", 4, 8, -6, has_infinity=False),
        Format("e5m2", "float8_e5m2", 3, 15, -14),
    )
}


def find_format(name: str) -> Format:
    """The format of that name; raises UsageError when there is none."""
    if name not in FORMATS:
        raise UsageError(f"unknown dtype {name!r}; {nearest(name, FORMATS)}")
    return FORMATS[name]


def find_stage_format(name: str) -> Format:
    """The format of that name among those of stages; raises UsageError when there is none."""
    if name not in STAGE_FORMATS:
        raise UsageError(f"unknown format {name!r}; {nearest(name, STAGE_FORMATS)}")
    return STAGE_FORMATS[name]

"""What fp16, bf16 and fp32 can hold, found by search with the rounding that everything here uses."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from math import nan

import torch
from torch import Tensor

from precision.experiments.effort import Effort
from precision.experiments.evidence import Value
from precision.numerics.rounding import round_to, torch_dtype
from precision.published.published import Published, Target, published

_DTYPES = ("fp16", "bf16", "fp32")
_LARGEST = "largest finite number"
_EXP_FINITE = "largest x with a finite exp(x)"
_EXP_POSITIVE = "smallest x with exp(x) > 0"
_FINITE = "largest number that rounds to a finite one"
_TIE = "just above a tie: 1 + u + 2^-40, rounded"
_RIGHT = {
    _LARGEST: {"fp16": 65504.0, "bf16": 3.3895e38, "fp32": 3.4028e38},
    _EXP_FINITE: {"fp16": 11.0859, "bf16": 88.5, "fp32": 88.7228},
    _EXP_POSITIVE: {"fp16": -17.33, "bf16": -92.5, "fp32": -103.97},
}
_DIGITS = 2e-4  # the relative rounding of these figures to four digits


@published.register("ranges")
@dataclass(frozen=True)
class Ranges(Published):
    """Each format ends where IEEE 754 says, and so does its exponential; a rounding from fp64 happens once."""

    source = "IEEE 754-2019, binary16 and binary32; the bfloat16 definition"
    setup = (
        "A search over all positive numbers of a format for the last one with a property. exp(x) is computed in fp64 "
        "and rounded once."
    )
    choices = "None: the values are exact. u is the unit roundoff; a conversion by way of fp32 would give 1 on the tie."
    plot = None

    def measure(self, effort: Effort) -> Iterable[Value]:
        for dtype in _DTYPES:
            yield _value(_LARGEST, dtype, _last(dtype, _is_finite))
            yield _value(_EXP_FINITE, dtype, _last(dtype, partial(_exp_is_finite, dtype)))
            yield _value(_EXP_POSITIVE, dtype, -_last(dtype, partial(_exp_is_positive, dtype)))
        yield _value(_FINITE, "fp16", _last("fp64", partial(_rounds_to_finite, "fp16")))
        for dtype, u in (("fp16", 2**-11), ("bf16", 2**-8)):
            above = torch.tensor(1 + u + 2**-40, dtype=torch.float64)
            yield _value(_TIE, dtype, float(round_to(above, dtype)))

    def targets(self, effort: Effort) -> Iterable[Target]:
        for quantity, rights in _RIGHT.items():
            for dtype, right in rights.items():
                yield Target(quantity, dtype, right, _DIGITS, _DIGITS, relative=True)
        yield Target(_FINITE, "fp16", 65520.0, 1e-10, 1e-10, origin="theory")
        yield Target(_TIE, "fp16", 1 + 2**-10, 0.0, 0.0, origin="theory")
        yield Target(_TIE, "bf16", 1 + 2**-7, 0.0, 0.0, origin="theory")


def _value(quantity: str, dtype: str, value: float) -> Value:
    return Value(quantity, dtype, nan, 0, value)


def _is_finite(x: Tensor) -> bool:
    return bool(x.isfinite())


def _rounds_to_finite(dtype: str, x: Tensor) -> bool:
    return _is_finite(round_to(x, dtype))


def _exp_is_finite(dtype: str, x: Tensor) -> bool:
    return _rounds_to_finite(dtype, x.double().exp())


def _exp_is_positive(dtype: str, x: Tensor) -> bool:
    """Of exp(-x)."""
    return bool(round_to((-x.double()).exp(), dtype) > 0)


def _last(dtype: str, holds: Callable[[Tensor], bool]) -> float:
    """The largest number x >= 0 of a format for which `holds`, which is true of 0 and false from some number on.

    The bits of positive numbers, read as integers, are in the order of the numbers.
    """
    number = torch_dtype(dtype)
    bits = {2: torch.int16, 4: torch.int32, 8: torch.int64}[number.itemsize]

    def decode(pattern: int) -> Tensor:
        return torch.tensor(pattern, dtype=bits).view(number)

    low, high = 0, int(torch.tensor(torch.inf, dtype=number).view(bits))
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(decode(middle)) else (low, middle)
    return float(decode(low))

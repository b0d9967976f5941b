"""Rounding once, against exact rational arithmetic and against numpy."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from precision.formats import FORMATS, Format
from precision.numerics.rounding import round_to, torch_dtype

EVERY = pytest.mark.parametrize("format", FORMATS.values(), ids=FORMATS)


def nearest_even(x: float, format: Format) -> float:
    """The number of the format nearest to x, ties to even, from the definition (Python rounds fractions to even)."""
    if x == 0 or not math.isfinite(x):
        return x
    exponent = max(math.frexp(x)[1] - 1, format.min_exponent)
    quantum = Fraction(2) ** (exponent - format.significand_bits + 1)
    rounded = round(Fraction(x) / quantum) * quantum
    if abs(rounded) > Fraction(format.largest):
        return math.copysign(math.inf, x)
    return math.copysign(float(abs(rounded)), x)


def rounded(x: float, name: str) -> float:
    result = round_to(torch.tensor([x], dtype=torch.float64), name)
    assert result.dtype == torch_dtype(name)
    return result.double().item()


def same(a: float, b: float) -> bool:
    """Equal as bits: NaN is NaN and -0 is not 0."""
    return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))


@st.composite
def near_ties(draw: st.DrawFn, format: Format) -> float:
    """Midpoints between neighbours of the format, some a hair to either side: where a second rounding shows."""
    odd = 2 * draw(st.integers(2 ** (format.significand_bits - 1), 2**format.significand_bits - 1)) + 1
    exponent = draw(st.integers(format.min_exponent - 3, format.max_exponent)) - format.significand_bits
    hair = draw(st.sampled_from([0, 1, -1])) * 2.0 ** -draw(st.integers(25, 51 - format.significand_bits))
    return draw(st.sampled_from([1, -1])) * math.ldexp(odd + hair, exponent)


@pytest.mark.parametrize(("name", "bits"), [("fp16", 11), ("bf16", 8)])
def test_a_tie_that_float32_would_invent(name: str, bits: int) -> None:
    above, below = 1 + 2.0**-bits + 2.0**-40, 1 + 2.0**-bits - 2.0**-40
    assert rounded(above, name) == 1 + 2.0 ** (1 - bits)
    assert rounded(-above, name) == -1 - 2.0 ** (1 - bits)
    assert rounded(below, name) == 1.0
    assert rounded(1 + 2.0**-bits, name) == 1.0  # a true tie goes to even
    assert rounded(1 + 3 * 2.0**-bits, name) == 1 + 2.0 ** (2 - bits)


@EVERY
@given(data=st.data())
def test_rounds_to_nearest_even(format: Format, data: st.DataObject) -> None:
    x = data.draw(st.floats(width=64) | st.floats(-10, 10))
    assert same(rounded(x, format.name), nearest_even(x, format))


@pytest.mark.parametrize("name", ["fp16", "bf16"])
@given(data=st.data())
def test_rounds_to_nearest_even_beside_ties(name: str, data: st.DataObject) -> None:
    x = data.draw(near_ties(FORMATS[name]))
    assert same(rounded(x, name), nearest_even(x, FORMATS[name]))


@EVERY
def test_edges_of_the_range(format: Format) -> None:
    smallest, largest = format.smallest, format.largest
    edges = [0.0, -0.0, math.inf, -math.inf, math.nan, largest, -largest, smallest, -smallest]
    edges += [smallest / 2, math.nextafter(smallest / 2, 1), -smallest / 2, 1e-320, -1e-320, 2.0**format.min_exponent]
    if math.isfinite(format.overflow_threshold):
        edges += [format.overflow_threshold, math.nextafter(format.overflow_threshold, 0), 1e308, -1e308]
    for x in edges:
        assert same(rounded(x, format.name), nearest_even(x, format)), x


def test_fp16_overflow_by_hand() -> None:
    assert rounded(65519.99999999, "fp16") == 65504
    assert rounded(65520.0, "fp16") == math.inf
    assert rounded(-65520.0, "fp16") == -math.inf


def test_fp16_is_numpys_on_many_numbers() -> None:
    generator = torch.Generator().manual_seed(0)
    exponent = torch.randint(-30, 18, (100_000,), generator=generator)
    x = torch.randn(100_000, generator=generator, dtype=torch.float64) * 2.0**exponent
    with np.errstate(over="ignore"):
        expected = x.numpy().astype(np.float16)
    np.testing.assert_array_equal(round_to(x, "fp16").numpy().view(np.int16), expected.view(np.int16))


@pytest.mark.parametrize("name", ["fp16", "bf16"])
def test_every_number_of_the_format_is_its_own_rounding(name: str) -> None:
    bits = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16)
    numbers = bits.view(torch_dtype(name))
    numbers = numbers[~numbers.isnan()]
    again = round_to(numbers.double(), name)
    assert torch.equal(again.view(torch.int16), numbers.view(torch.int16))


def test_keeps_the_shape() -> None:
    assert round_to(torch.zeros(2, 0, 3, dtype=torch.float64), "bf16").shape == (2, 0, 3)

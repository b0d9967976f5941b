"""Rounding once, against exact rational arithmetic, against numpy, and against torch's own 8-bit numbers."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from precision.formats import FORMATS, STAGE_FORMATS, Format
from precision.numerics.rounding import Mode, round_to, round_values, torch_dtype

EVERY = pytest.mark.parametrize("format", FORMATS.values(), ids=FORMATS)
NARROW = [name for name in STAGE_FORMATS if name != "fp64"]
EIGHT_BITS = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}


def spacing(x: float, format: Format) -> Fraction:
    """Between the format's numbers at x, were there no largest one."""
    exponent = max(math.frexp(x)[1] - 1, format.min_exponent)
    return Fraction(2) ** (exponent - format.significand_bits + 1)


def nearest_even(x: float, format: Format) -> float:
    """The number of the format nearest to x, ties to even, from the definition (Python rounds fractions to even)."""
    beyond = math.copysign(math.inf if format.has_infinity else format.largest, x)
    if x == 0 or math.isnan(x):
        return x
    if math.isinf(x):
        return beyond
    rounded = round(Fraction(x) / spacing(x, format)) * spacing(x, format)
    if abs(rounded) > Fraction(format.largest):
        return beyond
    return math.copysign(float(abs(rounded)), x)


def toward_zero(x: float, format: Format) -> float:
    """The number of the format next to x on the side of 0, from the definition."""
    if x == 0 or math.isnan(x) or (math.isinf(x) and format.has_infinity):
        return x
    if math.isinf(x) or abs(x) > format.largest:
        return math.copysign(format.largest, x)
    return math.copysign(float(abs(Fraction(x)) // spacing(x, format) * spacing(x, format)), x)


def rounded(x: float, name: str) -> float:
    result = round_to(torch.tensor([x], dtype=torch.float64), name)
    assert result.dtype == torch_dtype(name)
    return result.double().item()


def value(x: float, format: Format, mode: Mode = "nearest") -> float:
    return round_values(torch.tensor([x], dtype=torch.float64), format, mode, torch.Generator()).item()


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


@given(name=st.sampled_from(NARROW), data=st.data())
def test_stages_round_to_nearest_even(name: str, data: st.DataObject) -> None:
    format = STAGE_FORMATS[name]
    x = data.draw(st.floats(width=64) | st.floats(-10, 10) | near_ties(format))
    assert same(value(x, format), nearest_even(x, format))


@given(name=st.sampled_from(NARROW), data=st.data())
def test_truncation_goes_toward_zero(name: str, data: st.DataObject) -> None:
    format = STAGE_FORMATS[name]
    x = data.draw(st.floats(width=64) | st.floats(-10, 10))
    assert same(value(x, format, "truncate"), toward_zero(x, format))


@pytest.mark.parametrize("name", EIGHT_BITS)
@pytest.mark.parametrize("mode", ["nearest", "truncate", "stochastic"])
def test_every_number_of_eight_bits_is_its_own_rounding(name: str, mode: Mode) -> None:
    numbers = torch.arange(256, dtype=torch.int16).to(torch.uint8).view(EIGHT_BITS[name]).double()
    numbers = numbers[~numbers.isnan()]
    assert numbers[numbers.isfinite()].max() == STAGE_FORMATS[name].largest
    again = round_values(numbers, STAGE_FORMATS[name], mode, torch.Generator())
    assert torch.equal(again.view(torch.int64), numbers.view(torch.int64))


@pytest.mark.parametrize("name", EIGHT_BITS)
def test_eight_bits_are_torchs_on_every_float32_of_sixteen_bits(name: str) -> None:
    """float32 with the upper 16 bits at will and the lower ones 0 or 1: ties, and values a hair beside them."""
    upper = torch.arange(2**16, dtype=torch.int64) << 16
    x = torch.cat([upper, upper | 1]).to(torch.int32).view(torch.float32)
    x = x[~x.isnan()]
    found = round_values(x.double(), STAGE_FORMATS[name])
    assert torch.equal(found, x.to(EIGHT_BITS[name]).double())


def test_tf32_is_float32_without_thirteen_bits() -> None:
    assert value(1 + 2.0**-11, STAGE_FORMATS["tf32"]) == 1.0  # a tie goes to even
    assert value(1 + 2.0**-11 + 2.0**-40, STAGE_FORMATS["tf32"]) == 1 + 2.0**-10
    assert value(2.0**127 * (2 - 2.0**-11), STAGE_FORMATS["tf32"]) == math.inf
    bits = torch.randint(-(2**18), 2**18, (1000,), generator=torch.Generator().manual_seed(0)) * 2**13
    x = bits.to(torch.int32).view(torch.float32).double()
    x = x[x.isfinite()]
    assert x.numel() > 900 and torch.equal(round_values(x, STAGE_FORMATS["tf32"]), x)


def test_overflow_by_hand() -> None:
    """fp16 and E5M2 have an infinity, E4M3 has none."""
    for name, last, over in (("fp16", 65504.0, 65520.0), ("e5m2", 57344.0, 61440.0)):
        assert value(math.nextafter(over, 0), STAGE_FORMATS[name]) == last
        assert value(-over, STAGE_FORMATS[name]) == -math.inf
        assert value(1e300, STAGE_FORMATS[name], "truncate") == last
    for x in (449.0, 465.0, 1e300, math.inf):
        assert value(-x, STAGE_FORMATS["e4m3"]) == -448.0


@pytest.mark.parametrize("name", NARROW)
def test_stochastic_rounding_takes_a_neighbour_by_chance(name: str) -> None:
    """The mean of n draws is x to within 5 standard deviations, which are at most half a spacing / sqrt(n)."""
    format, n = STAGE_FORMATS[name], 20_000
    for x in (1 + 0.3 * 2 * format.unit_roundoff, -0.7 * format.smallest, 5.5 * format.smallest):
        generator = torch.Generator().manual_seed(1)
        drawn = round_values(torch.full((n,), x, dtype=torch.float64), format, "stochastic", generator)
        step = float(spacing(x, format))
        assert set(((drawn / step) - math.floor(x / step)).tolist()) == {0.0, 1.0}
        assert abs(drawn.mean().item() - x) < 5 * step / 2 / math.sqrt(n)


def test_stochastic_rounding_repeats_with_its_seed() -> None:
    x = torch.randn(1000, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    drawn = [
        round_values(x, STAGE_FORMATS["bf16"], "stochastic", torch.Generator().manual_seed(seed)) for seed in (3, 3, 4)
    ]
    assert torch.equal(drawn[0], drawn[1]) and not torch.equal(drawn[0], drawn[2])


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

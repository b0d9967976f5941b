"""Errors by hand, ulp by Python and numpy, bias by theory."""

import math
import re

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from precision.formats import FORMATS, Format
from precision.numerics.metrics import measure_errors, ulp
from precision.numerics.rounding import round_to

FP16, FP32, FP64 = FORMATS["fp16"], FORMATS["fp32"], FORMATS["fp64"]
EVERY = pytest.mark.parametrize("format", FORMATS.values(), ids=FORMATS)


def doubles(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def ulp_of(x: float, format: Format) -> float:
    return ulp(doubles(x), format).item()


# ulp


@given(x=st.floats(allow_nan=False, allow_infinity=False))
def test_ulp_of_fp64_is_pythons(x: float) -> None:
    assert ulp_of(x, FP64) == math.ulp(x)


@pytest.mark.parametrize(("format", "dtype"), [(FP16, np.float16), (FP32, np.float32)])
@given(data=st.data())
def test_ulp_is_numpys_spacing(format: Format, dtype: type[np.floating], data: st.DataObject) -> None:
    x = data.draw(st.floats(width=16 if dtype is np.float16 else 32, allow_nan=False, allow_infinity=False))
    assert ulp_of(x, format) == float(np.spacing(dtype(abs(x))))


@EVERY
def test_ulp_at_powers_of_two_and_below_the_normal_range(format: Format) -> None:
    p, low = format.significand_bits, 2.0**format.min_exponent
    for exponent in (0, 1, -3, format.min_exponent + 1):
        power = 2.0**exponent
        assert ulp_of(power, format) == power * 2.0 ** (1 - p)
        assert ulp_of(-power, format) == power * 2.0 ** (1 - p)
        assert ulp_of(math.nextafter(power, 0), format) == power * 2.0**-p  # the next binade down
    for small in (low, low / 2, format.smallest, 0.0, -0.0):
        assert ulp_of(small, format) == format.smallest


def test_ulp_beyond_the_range_is_that_of_the_largest_binade() -> None:
    assert ulp_of(1e6, FP16) == ulp_of(65504.0, FP16) == 32.0


# Errors by hand


def test_errors_by_hand() -> None:
    """References 1, 2, 4, 8 in fp16: ulp 2^-10, 2^-9, 2^-8, 2^-7; errors of 1, -2, -3 and 0 ulp."""
    reference = doubles(1, 2, 4, 8).reshape(1, 1, 2, 2)
    x = (doubles(1 + 2**-10, 2 - 2 * 2**-9, 4 - 3 * 2**-8, 8)).reshape(1, 1, 2, 2).half()
    errors = measure_errors(x, reference, FP16)
    assert errors is not None
    a, b, c = 2**-10, 2 * 2**-9, 3 * 2**-8
    assert errors.max_abs == c
    assert errors.rms == pytest.approx(math.sqrt((a * a + b * b + c * c) / 4), rel=1e-15)
    assert errors.rel_l2 == pytest.approx(math.sqrt(a * a + b * b + c * c) / math.sqrt(85), rel=1e-15)
    assert (errors.max_ulp, errors.median_ulp, errors.p99_ulp) == (3.0, 1.0, 3.0)
    assert errors.bias_ulp == (1 - 2 - 3) / 4
    assert errors.worst == (0, 0, 1, 0)
    assert errors.compared == 4


def test_error_at_a_zero_reference_is_counted_in_the_smallest_spacing() -> None:
    errors = measure_errors(doubles(3 * 2**-24, 0).half(), doubles(0, 0), FP16)
    assert errors is not None
    assert errors.max_ulp == 3.0


@pytest.mark.parametrize(
    ("count", "median", "p99"), [(1, 1, 1), (2, 1, 2), (99, 50, 99), (100, 50, 99), (1001, 501, 991)]
)
def test_quantiles_are_order_statistics(count: int, median: int, p99: int) -> None:
    """Errors of 1, 2, ..., count ulp, shuffled: the smallest that so many percent do not exceed."""
    order = torch.randperm(count, generator=torch.Generator().manual_seed(0)) + 1
    errors = measure_errors(order * 2.0**-24, torch.zeros(count, dtype=torch.float64), FP16)
    assert errors is not None
    assert (errors.median_ulp, errors.p99_ulp) == (median, p99)


def test_right_output_has_no_error() -> None:
    errors = measure_errors(torch.ones(2, 3), torch.ones(2, 3, dtype=torch.float64), FP32)
    assert errors is not None
    assert errors.max_abs == errors.rms == errors.rel_l2 == errors.max_ulp == errors.bias_ulp == 0.0


def test_zero_output_and_zero_reference() -> None:
    errors = measure_errors(torch.zeros(3), doubles(0, 0, 0), FP32)
    assert errors is not None
    assert errors.rel_l2 == 0.0


def test_everything_is_infinitely_wrong_relative_to_zero() -> None:
    errors = measure_errors(torch.ones(3), doubles(0, 0, 0), FP32)
    assert errors is not None
    assert errors.rel_l2 == math.inf


# Bias


@pytest.mark.parametrize("name", ["fp16", "bf16"])
def test_truncation_is_biased_by_half_an_ulp_and_rounding_is_not(name: str) -> None:
    """Over a binade the error of truncation is uniform in (-1, 0] ulp, that of rounding in [-1/2, 1/2]: 5 sigma."""
    count = 40_000
    exact = 1 + torch.rand(count, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    step = 2.0 ** (1 - FORMATS[name].significand_bits)
    tolerance = 5 * math.sqrt(1 / 12 / count)
    truncated = measure_errors((exact / step).floor() * step, exact, FORMATS[name])
    rounded = measure_errors(round_to(exact, name), exact, FORMATS[name])
    assert truncated is not None and rounded is not None
    assert truncated.bias_ulp == pytest.approx(-0.5, abs=tolerance)
    assert rounded.bias_ulp == pytest.approx(0.0, abs=tolerance)
    assert rounded.max_ulp <= 0.5 < truncated.max_ulp < 1
    assert rounded.median_ulp == pytest.approx(0.25, abs=5 * math.sqrt(1 / 16 / count))


# What is compared


def test_elements_that_are_not_finite_are_left_out() -> None:
    nan, inf = math.nan, math.inf
    x, reference = doubles(1, nan, inf, 4, 5, 6.5).float(), doubles(1, 2, 3, nan, -inf, 6)
    errors = measure_errors(x, reference, FP32)
    assert errors is not None
    assert errors.compared == 2
    assert errors.max_abs == 0.5
    assert errors.worst == (5,)
    assert errors.rel_l2 == 0.5 / math.sqrt(37)


def test_rows_left_out() -> None:
    reference = torch.zeros(1, 2, 2, 3, dtype=torch.float64)
    x = reference.clone()
    x[0, 1, 0, 2], x[0, 0, 1, 1] = 5.0, 3.0
    errors = measure_errors(x, reference, FP32, rows=torch.tensor([[[True, True], [False, True]]]))
    assert errors is not None
    assert errors.max_abs == 3.0
    assert errors.worst == (0, 0, 1, 1)
    assert errors.compared == 9


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_nothing_to_compare(value: float) -> None:
    assert measure_errors(torch.full((2, 2), value), torch.ones(2, 2, dtype=torch.float64), FP32) is None
    assert measure_errors(torch.ones(2, 2), torch.full((2, 2), value, dtype=torch.float64), FP32) is None
    assert measure_errors(torch.ones(2, 2), torch.ones(2, 2).double(), FP32, torch.zeros(2, dtype=torch.bool)) is None
    assert measure_errors(torch.ones(0, 3), torch.ones(0, 3).double(), FP32) is None


def test_more_elements_than_a_torch_quantile_takes() -> None:
    count = 2**24 + 3
    reference = torch.ones(count, dtype=torch.float64)
    x = torch.ones(count)
    x[-1] += 2**-10
    errors = measure_errors(x, reference, FP32)
    assert errors is not None
    assert (errors.median_ulp, errors.p99_ulp, errors.max_ulp) == (0.0, 0.0, 2.0**13)
    assert errors.worst == (count - 1,)


@EVERY
def test_elements_that_assert_close_refuses_one_by_one(format: Format) -> None:
    """References from 1e-6 to 10, off by 1e-9 to 0.1 of them, in steps that straddle every tolerance."""
    reference = torch.logspace(-6, 1, 40, dtype=torch.float64)
    x = round_to(reference * (1 + torch.logspace(-9, -1, 40, dtype=torch.float64)), format.name)
    errors = measure_errors(x, reference, format)
    refused = 0
    for a, b in zip(x, reference, strict=True):
        try:
            # Both in fp64, for the reference is not rounded; the tolerances are those of the dtype.
            torch.testing.assert_close(a.double(), b, **dict(zip(("rtol", "atol"), _default(x.dtype), strict=True)))
        except AssertionError:
            refused += 1
    assert errors is not None
    assert errors.not_close == refused > 0


def _default(dtype: torch.dtype) -> tuple[float, float]:
    """torch's own, as the smallest message of a refusal names them."""
    with pytest.raises(AssertionError) as caught:
        torch.testing.assert_close(torch.ones(1, dtype=dtype), torch.full((1,), 2, dtype=dtype))
    found = re.findall(r"up to ([\d.e-]+) allowed", str(caught.value))
    return float(found[1]), float(found[0])

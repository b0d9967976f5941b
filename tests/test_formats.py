"""Number formats against torch, mpmath and the tables that everyone quotes."""

import math

import mpmath
import pytest
import torch

from precision.errors import UsageError
from precision.formats import FORMATS, Format, find_format
from precision.numerics.rounding import torch_dtype

EVERY = pytest.mark.parametrize("format", FORMATS.values(), ids=FORMATS)


@EVERY
def test_ranges_are_those_of_torch(format: Format) -> None:
    info = torch.finfo(torch_dtype(format.name))
    assert format.torch_name == str(torch_dtype(format.name)).removeprefix("torch.")
    assert format.largest == info.max
    assert format.unit_roundoff == info.eps / 2
    assert 2.0**format.min_exponent == info.smallest_normal
    assert format.smallest == info.smallest_normal * info.eps


@pytest.mark.parametrize(
    ("name", "unit_roundoff", "largest"),
    [
        ("fp16", 2.0**-11, 65504.0),
        ("bf16", 2.0**-8, 3.3895313892515355e38),
        ("fp32", 2.0**-24, 3.4028234663852886e38),
        ("fp64", 2.0**-53, 1.7976931348623157e308),
    ],
)
def test_published_figures(name: str, unit_roundoff: float, largest: float) -> None:
    assert FORMATS[name].unit_roundoff == unit_roundoff
    assert FORMATS[name].largest == largest


def test_fp16_overflows_from_65520() -> None:
    assert FORMATS["fp16"].overflow_threshold == 65520.0


@pytest.mark.parametrize("name", ["fp16", "bf16", "fp32"])
def test_the_overflow_threshold_is_the_first_number_that_torch_rounds_to_infinity(name: str) -> None:
    threshold = torch.tensor(FORMATS[name].overflow_threshold, dtype=torch.float64)
    below = torch.nextafter(threshold.float(), torch.tensor(0.0)) if name != "fp32" else threshold
    assert torch.isinf(threshold.to(torch_dtype(name)))
    if name != "fp32":  # through float32, whose neighbour below still rounds down
        assert below.to(torch_dtype(name)) == FORMATS[name].largest
    else:
        assert torch.nextafter(threshold, torch.zeros_like(threshold)).float() == FORMATS[name].largest


@pytest.mark.parametrize(("name", "last"), [("fp16", 11.0859), ("bf16", 88.5), ("fp32", 88.7228)])
def test_last_number_of_the_format_whose_exp_is_finite(name: str, last: float) -> None:
    number, following = around(FORMATS[name].exp_overflow, torch_dtype(name))
    assert number.item() == pytest.approx(last, abs=5e-5)
    assert torch.isfinite(number.exp()) and torch.isinf(following.exp())


@pytest.mark.parametrize(
    ("name", "last", "digits"), [("fp16", -17.33, 5e-3), ("bf16", -92.5, 0), ("fp32", -103.97, 5e-3)]
)
def test_last_number_of_the_format_whose_exp_is_not_zero(name: str, last: float, digits: float) -> None:
    number, following = around(FORMATS[name].exp_underflow, torch_dtype(name))
    assert number.item() == pytest.approx(last, abs=digits)
    # Rounded from fp64, since a vectorised exp in fp32 may flush subnormal results.
    rounded = torch.stack([number, following]).double().exp().to(torch_dtype(name))
    assert rounded[0] > 0 and rounded[1] == 0


@EVERY
def test_exp_limits_are_correct_to_the_last_bit(format: Format) -> None:
    with mpmath.workdps(50):
        over = (2 - mpmath.mpf(2) ** -format.significand_bits) * mpmath.mpf(2) ** format.max_exponent
        under = mpmath.mpf(2) ** (format.min_exponent - format.significand_bits)
        assert mpmath.exp(math.nextafter(format.exp_overflow, 0)) < over
        assert mpmath.exp(math.nextafter(format.exp_overflow, math.inf)) >= over
        assert mpmath.exp(math.nextafter(format.exp_underflow, 0)) > under
        assert mpmath.exp(math.nextafter(format.exp_underflow, -math.inf)) <= under


def test_fp64_exp_limit_is_where_exp_overflows() -> None:
    limit = torch.tensor(FORMATS["fp64"].exp_overflow, dtype=torch.float64)
    assert torch.isinf(limit.exp())
    assert torch.isfinite(torch.nextafter(limit, torch.zeros_like(limit)).exp())


def test_unknown_format_gets_a_suggestion() -> None:
    with pytest.raises(UsageError, match=r"unknown dtype 'fp61'; did you mean .*'fp16'"):
        find_format("fp61")


def around(limit: float, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """The two neighbours in a format between which a limit lies, the one nearer to 0 first."""
    bits = (
        torch.tensor([limit], dtype=torch.float64)
        .to(dtype)
        .view(torch.int32 if dtype == torch.float32 else torch.int16)
    )
    numbers = torch.cat([bits - 1, bits, bits + 1]).view(dtype)  # ordered by magnitude
    inner = numbers[numbers.double().abs() < abs(limit)][-1]
    outer = numbers[numbers.double().abs() >= abs(limit)][0]
    return inner, outer

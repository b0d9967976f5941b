"""Scale rules by hand."""

import math

import pytest

from precision.errors import UsageError
from precision.problem import Shape
from precision.scores.scale import canonical_scale, resolve_scale, scale_rules

SHAPE = Shape(1, 8, 2, 5, 7, 64, 32)

BY_HAND = {
    "sqrt_dk": 1 / 8,
    "none": 1.0,
    "dk": 1 / 64,
    "log_dk": 0.2404491734814939,  # 1 / (6 ln 2)
    "sqrt_dmodel": 0.04419417382415922,  # 1 / sqrt(8 x 64)
    "temperature": 1 / 8,
}


def test_every_rule_has_a_value_by_hand() -> None:
    assert {name: resolve_scale(name, SHAPE) for name in scale_rules.names()} == pytest.approx(BY_HAND, rel=1e-15)


def test_d_model_counts_query_heads() -> None:
    one_head = Shape(1, 1, 1, 5, 7, 64, 32)
    assert resolve_scale("sqrt_dmodel", one_head) == resolve_scale("sqrt_dk", one_head)


def test_widths_where_the_logarithm_is_no_divisor() -> None:
    with pytest.raises(UsageError, match="d_k of 2 or more"):
        resolve_scale("log_dk", Shape(1, 1, 1, 1, 1, 1, 1))
    assert resolve_scale("log_dk", Shape(1, 1, 1, 1, 1, 2, 1)) == pytest.approx(1 / math.log(2), rel=1e-15)


@pytest.mark.parametrize("number", [0.0, -0.5, 3.5, math.inf])
def test_a_number_is_itself(number: float) -> None:
    assert resolve_scale(number, SHAPE) == number


@pytest.mark.parametrize(
    ("given", "canonical"),
    [("sqrt_dk", "sqrt_dk"), (" dk ", "dk"), ("0.5", 0.5), (2, 2.0), ("1e-3", 0.001), (-1.5, -1.5)],
)
def test_canonical(given: str | float, canonical: str | float) -> None:
    result = canonical_scale(given)
    assert result == canonical and type(result) is type(canonical)


@pytest.mark.parametrize("given", ["sqrt_d", "half", ""])
def test_neither_a_rule_nor_a_number(given: str) -> None:
    with pytest.raises(UsageError, match=r"unknown scale.*or a number"):
        canonical_scale(given)

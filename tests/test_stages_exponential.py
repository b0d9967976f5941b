"""The exponentials of kernels, against mpmath and against what is published of them."""

import math

import mpmath
import numpy as np
import pytest
import torch
from torch import Tensor

from precision.formats import STAGE_FORMATS
from precision.numerics.rounding import round_values
from precision.stages.exponential import fit_absolute, fit_relative, two_to_the

FRACTIONS = torch.linspace(0, 1, 100_001, dtype=torch.float64)[:-1]


def relative_error(found: Tensor, x: Tensor) -> float:
    return float((found / x.exp2() - 1).abs().max())


def test_flash_attention_4s_polynomial_is_as_good_as_published() -> None:
    """Largest relative error 8.6e-5; after rounding to bf16 3.90e-3, where the exact exponential has 3.89e-3."""
    found = two_to_the(FRACTIONS, "poly", 3)
    assert relative_error(found, FRACTIONS) == pytest.approx(8.6e-5, rel=0.01)
    bf16 = STAGE_FORMATS["bf16"]
    assert relative_error(round_values(found, bf16), FRACTIONS) == pytest.approx(3.90e-3, abs=5e-6)
    assert relative_error(round_values(FRACTIONS.exp2(), bf16), FRACTIONS) == pytest.approx(3.89e-3, abs=5e-6)


@pytest.mark.parametrize("degree", range(1, 8))
def test_the_fit_is_the_best(degree: int) -> None:
    """Its error swings between equal extremes, one more than there are free coefficients (Chebyshev's theorem).

    c0 = 1 is not free, and the functions x, ..., x^n are a Chebyshev system on (0, 1].
    """
    coefficients = fit_relative(degree)
    assert coefficients[0] == 1.0 and len(coefficients) == degree + 1
    x = np.linspace(0, 1, 100_001)
    error = np.polynomial.polynomial.polyval(x, coefficients) / np.exp2(x) - 1
    extreme = error[np.abs(error) > (1 - 1e-3) * np.abs(error).max()]
    assert np.count_nonzero(np.diff(np.sign(extreme))) == degree


def test_the_cubic_is_the_one_that_torch_has() -> None:
    """1 + x - 2^x as a cubic, in fexp_u20 of aten/src/ATen/cpu/vec/vec512/vec512_float.h."""
    torchs = (0.00010703434948458272, 0.30354260500649682, -0.22433836478672356, -0.079204240219773236)
    ours = fit_absolute(3)
    assert [1 - ours[0], 1 - ours[1], -ours[2], -ours[3]] == pytest.approx(torchs, abs=1e-9)


@pytest.mark.parametrize(
    ("kind", "degree", "allowed"), [("exp2", 0, 1e-15), ("poly", 7, 1e-10), ("poly", 3, 8.7e-5), ("fast", 0, 1.2e-4)]
)
def test_powers_of_two_are_right_over_the_range(kind: str, degree: int, allowed: float) -> None:
    """fast: 1.07e-4 of the cubic and 2^-18 of the significand that is left."""
    points = [-125.9, -60.25, -3.0, -0.001, 0.0, 0.7, 5.5, 100.3]
    found = two_to_the(torch.tensor(points, dtype=torch.float64), kind, degree)  # type: ignore[arg-type]
    for x, y in zip(points, found.tolist(), strict=True):
        assert abs(mpmath.mpf(y) / mpmath.power(2, x) - 1) < allowed


@pytest.mark.parametrize("kind", ["exp2", "poly", "fast"])
def test_ends_of_the_range(kind: str) -> None:
    x = torch.tensor([-math.inf, -2000.0, 2000.0, math.inf, math.nan], dtype=torch.float64)
    found = two_to_the(x, kind, 3).tolist()  # type: ignore[arg-type]
    assert found[:4] == [0.0, 0.0, math.inf, math.inf] and math.isnan(found[4])


def test_fast_leaves_seventeen_bits_and_no_subnormals() -> None:
    found = two_to_the(FRACTIONS[1000:-1000] - 40, "fast", 0) * 2.0**40
    assert torch.equal(found * 2.0**17, (found * 2.0**17).round())
    assert two_to_the(torch.tensor([-126.5, -127.0], dtype=torch.float64), "fast", 0).tolist() == [0.0, 0.0]

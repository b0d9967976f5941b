"""The rule on values made by hand: exact rounding passes; truncation, a narrow format and one wrong element do not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from precision.checking.problems import PROBLEMS, find_problem
from precision.checking.rule import judge_tensor
from precision.checking.truth import Truth, truth_of, yardstick_of
from precision.numerics.metrics import ulp
from precision.numerics.rounding import round_to

CPU = torch.device("cpu")
DTYPES = ["fp32", "fp16", "bf16"]


def faults(change: Callable[[Tensor, Truth], Tensor], dtype: str, name: str = "plain", tensor: str = "out") -> set[str]:
    """What the rule says of the right values, changed and rounded once."""
    problem = find_problem(name)
    truth = truth_of(problem, dtype, 0, CPU)
    found = round_to(change(truth.values[tensor], truth), dtype)
    return set(judge_tensor(tensor, found, truth, yardstick_of(problem, dtype, CPU)[tensor]).faults)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("tensor", ["out", "dq", "dk", "dv"])
@pytest.mark.parametrize("name", ["plain", "one-sided", "127x129", "staircase", "key-padding"])
def test_the_right_value_rounded_once_passes(name: str, tensor: str, dtype: str) -> None:
    assert faults(lambda right, truth: right, dtype, name, tensor) == set()


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("name", ["plain", "one-sided"])
@pytest.mark.parametrize("direction", [-1.0, 1.0])
def test_truncation_shows_in_the_bias_alone(name: str, dtype: str, direction: float) -> None:
    # Half an ulp toward 0 (or away from it) and then to nearest is truncation (or its opposite).
    def shift(right: Tensor, truth: Truth) -> Tensor:
        return right + direction * right.sign() * ulp(right, truth.format) / 2

    assert faults(shift, dtype, name) == {"bias"}


@pytest.mark.parametrize("dtype", DTYPES)
def test_one_element_that_is_off_shows_in_the_maximum(dtype: str) -> None:
    def spoil(right: Tensor, truth: Truth) -> Tensor:
        right = right.clone()
        right[1, 2, 3, 4] += 0.1
        return right

    assert faults(spoil, dtype) >= {"max"}


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_nan_is_never_right(dtype: str) -> None:
    def spoil(right: Tensor, truth: Truth) -> Tensor:
        right = right.clone()
        right[1, 2, 3, 4] = torch.nan
        return right

    assert faults(spoil, dtype) >= {"not finite"}


@pytest.mark.parametrize("tensor", ["out", "dq", "dk", "dv"])
@pytest.mark.parametrize(("dtype", "narrow"), [("fp32", "fp16"), ("fp32", "bf16"), ("fp16", "bf16")])
def test_a_tensor_that_went_through_a_narrower_format(dtype: str, narrow: str, tensor: str) -> None:
    assert "coarse" in faults(lambda right, truth: round_to(right, narrow).double(), dtype, tensor=tensor)


@pytest.mark.parametrize("dtype", ["fp64", *DTYPES])
def test_every_yardstick_within_the_format_is_finite(dtype: str) -> None:
    for problem in PROBLEMS:
        if dtype in problem.dtypes and not problem.beyond:
            for tensor, yardstick in yardstick_of(problem, dtype, CPU).items():
                assert 0 <= yardstick.rms <= yardstick.max_abs < float("inf"), (problem.name, tensor)


def test_the_yardstick_of_one_key_is_zero_and_the_bound_takes_its_place() -> None:
    problem = find_problem("one-key")
    assert yardstick_of(problem, "bf16", CPU)["out"].max_abs == 0
    truth = truth_of(problem, "bf16", 0, CPU)
    zero = torch.zeros_like(truth.values["dq"])
    noise = zero + 1e-4  # far below u |dO| |V| scale |K|, which a kernel makes that rounds dP and D apart
    for found, passes in ((zero, True), (noise, True), (zero + 10.0, False)):
        assert judge_tensor("dq", found, truth, yardstick_of(problem, "bf16", CPU)["dq"]).passed is passes

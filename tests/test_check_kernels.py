"""The tester is tested: every wrong kernel is flagged and every right one is not."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch.nn.functional as F
from torch import Tensor

import tests.kernels.right
import tests.kernels.wrong  # noqa: F401  # registers the kernels
from precision.checking.api import check
from precision.checking.result import Outcome, Verdict
from tests.kernels.catalogue import ALL, RIGHT, WRONG, Wrong


@pytest.fixture(autouse=True)
def _warnings_of_torch() -> Iterator[None]:
    """torch warns of the reasons for which it does not run FLASH."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=UserWarning)
        yield


def _cases() -> list[tuple[Wrong, str]]:
    """A fault of all dtypes in one of them, in turn; a fault of precision in each dtype that has it."""
    cases = []
    for index, kernel in enumerate(WRONG):
        chosen = [ALL[index % len(ALL)]] if kernel.dtypes == ALL else kernel.dtypes
        cases += [(kernel, dtype) for dtype in chosen]
    return cases


@pytest.mark.parametrize(("kernel", "dtype"), _cases(), ids=lambda x: x if isinstance(x, str) else x.name)
def test_a_wrong_kernel_is_flagged_and_its_fault_named(kernel: Wrong, dtype: str) -> None:
    result = check(kernel.function, dtypes=(dtype,), device="cpu", level="quick")
    assert result.verdict is Verdict.FAIL
    assert not result.passed
    assert any(kernel.says in reason for reason in result.reasons), result.reasons


@pytest.mark.parametrize("kernel", RIGHT, ids=lambda kernel: kernel.__name__)
def test_a_right_kernel_passes(kernel: Callable[..., Tensor]) -> None:
    result = check(kernel, dtypes=ALL, device="cpu", level="quick")
    assert result.verdict is not Verdict.FAIL, result.reasons
    assert result.passed
    assert result.reasons == ()


def test_there_are_enough_kernels_of_every_kind() -> None:
    modules = {kernel.function.__module__.rpartition(".")[2] for kernel in WRONG}
    assert modules == {"blocks", "gradients", "heads", "masks", "rescaling", "scales", "stages", "state"}
    assert len({kernel.name for kernel in WRONG}) == len(WRONG) >= 40
    assert len({kernel.__name__ for kernel in RIGHT}) == len(RIGHT) >= 12


@pytest.mark.parametrize(
    ("name", "dtype", "says"),
    [
        ("accumulator_not_rescaled_for_the_remainder", "fp32", "before the last block, which is not whole"),
        ("dq_with_default_scale", "bf16", "dq has the default scale, not the one given"),
        ("a_block_lost_now_and_then", "bf16", "two calls with the same inputs differ"),
        ("scale_of_the_first_call", "fp32", "something is kept between calls"),
        ("inputs_in_tf32", "fp32", "q and k look rounded to fp16 or TF32"),
    ],
)
def test_with_all_problems_the_first_reason_is_the_fault_itself(name: str, dtype: str, says: str) -> None:
    kernel = next(kernel for kernel in WRONG if kernel.name == name)
    result = check(kernel.function, dtypes=(dtype,), device="cpu")
    assert says in result.reasons[0], result.reasons
    wrong_on = f"{dtype}: wrong on "
    assert all(says in reason or reason.startswith(wrong_on) for reason in result.reasons), result.reasons


def test_a_general_fault_is_not_repeated_as_limits() -> None:
    def nothing(q: Tensor, k: Tensor, v: Tensor, **call: object) -> None:
        return None

    def coarse(q: Tensor, k: Tensor, v: Tensor, enable_gqa: bool = False, **call: object) -> Tensor:
        narrow = (x.bfloat16() for x in (q, k, v))
        return F.scaled_dot_product_attention(*narrow, enable_gqa=enable_gqa).to(q.dtype)

    for kernel in (nothing, coarse):
        result = check(kernel, dtypes=("fp32",), device="cpu", backward=False)  # type: ignore[arg-type]
        assert result.verdict is Verdict.FAIL
        assert result.limits == (), result.limits


def test_a_finite_wrong_value_is_excused_by_range_alone() -> None:
    def wrong_beyond(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
        """Wrong where a masked key is NaN, and where |q.k| is beyond fp16."""
        out = F.scaled_dot_product_attention(q, k, v.nan_to_num(0.0), **call)
        beyond = q.shape[1] == k.shape[1] and bool(((q.float() @ k.float().mT).abs() > 65504).any())
        return out + 1 if beyond or bool(v.isnan().any()) else out

    result = check(wrong_beyond, dtypes=("fp16",), device="cpu", backward=False)
    failed = {row.problem for row in result.rows if row.outcome is Outcome.FAIL}
    assert failed == {"zoo-padding-nan"}
    assert any("out is further off than rounding where |q.k| exceeds 65504" in limit for limit in result.limits)


def test_a_forward_pass_that_refuses_inputs_with_gradients_has_no_backward_pass() -> None:
    def forward(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
        if q.requires_grad:
            raise NotImplementedError("this kernel does not support backward")
        return F.scaled_dot_product_attention(q, k, v, **call)

    result = check(forward, dtypes=("fp32",), device="cpu", level="quick")
    assert result.verdict is Verdict.PASS_WITH_LIMITS, result.reasons
    assert any("no backward: this kernel does not support backward" in limit for limit in result.limits)

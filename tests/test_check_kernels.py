"""The tester is tested: every wrong kernel is flagged and every right one is not."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator

import pytest
from torch import Tensor

import tests.kernels.right
import tests.kernels.wrong  # noqa: F401  # registers the kernels
from precision.checking.api import check
from precision.checking.result import Verdict
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

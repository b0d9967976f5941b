"""A kernel that refuses a shape or a dtype by an error of its own is checked on what it takes, and that is a limit."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from precision.checking.api import check
from precision.checking.fit import fit
from precision.checking.limits import list_limits
from precision.checking.problems import PROBLEMS, find_problem
from precision.checking.result import Outcome, Row, Verdict
from precision.kernel import Kernel

CPU = torch.device("cpu")


def whole_blocks(q: Tensor, k: Tensor, v: Tensor, is_causal: bool = False, scale: float | None = None) -> Tensor:
    """What a first kernel takes."""
    assert q.shape[-1] in (16, 32, 64, 128), f"a width of {q.shape[-1]}"
    if q.shape[2] % 64 or k.shape[2] % 64:
        raise ValueError(f"lengths {q.shape[2]} and {k.shape[2]}")
    return F.scaled_dot_product_attention(q, k, v, is_causal=is_causal, scale=scale)


def wrong_blocks(q: Tensor, k: Tensor, v: Tensor, is_causal: bool = False, scale: float | None = None) -> Tensor:
    return whole_blocks(q, k, v, is_causal, 1 / q.shape[-1] if scale is None else scale)


def half_only(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    if q.dtype == torch.float32:
        raise ValueError("16 bits only")
    return F.scaled_dot_product_attention(q, k, v, **call)


def nothing(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    raise NotImplementedError("not today")


def test_a_kernel_of_whole_blocks_is_checked_in_whole_blocks() -> None:
    result = check(whole_blocks, dtypes=("fp32",), device="cpu", level="quick")
    assert result.verdict is Verdict.PASS_WITH_LIMITS, result.reasons
    assert any("shapes are refused, the first with AssertionError: a width of 40" in limit for limit in result.limits)
    judged = {row.problem for row in result.rows if row.max_abs is not None}
    assert {"plain", "causal", "scale-0.3", "needles-1061", "staircase", "do-expanded"} <= judged
    assert {"repeat", "large-grid", "two-graphs"} <= {row.problem for row in result.rows}
    assert not any(row.outcome is Outcome.FAIL for row in result.rows)


def test_and_its_fault_is_found_and_named() -> None:
    result = check(wrong_blocks, dtypes=("fp32",), device="cpu")
    assert result.verdict is Verdict.FAIL
    assert result.reasons[0] == "matches scale 1/d_k"
    assert "Case(" in result.reproduction


def test_a_dtype_that_is_refused_is_one_limit() -> None:
    result = check(half_only, dtypes=("fp32", "bf16"), device="cpu", level="quick", backward=False)
    assert result.verdict is Verdict.PASS_WITH_LIMITS, result.reasons
    of_fp32 = [limit for limit in result.limits if "fp32" in limit]
    assert of_fp32 == ["every problem is refused: ValueError: 16 bits only (fp32)"]


def test_who_refuses_everything_fails() -> None:
    result = check(nothing, dtypes=("fp32", "fp16"), device="cpu", level="quick")
    assert result.verdict is Verdict.FAIL
    assert result.reasons[0] == "every problem is refused: NotImplementedError: not today"
    assert result.limits == ()


@pytest.mark.parametrize("name", [p.name for p in PROBLEMS if not p.name.startswith(("zoo-", "needles-6", "65551"))])
def test_a_problem_can_be_made_in_whole_blocks(name: str) -> None:
    problem = find_problem(name)
    dtype = problem.dtypes[-1]

    def picky(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
        if {q.shape[-1], v.shape[-1]} - {2**power for power in range(4, 10)} or q.shape[2] % 128 or k.shape[2] % 128:
            raise ValueError
        return torch.zeros(*q.shape[:3], v.shape[-1], dtype=q.dtype)

    shape = fit(Kernel.of(picky), problem, dtype, CPU).shape
    x = problem.resized(shape).make(dtype, 0, CPU).x
    assert (x.q.shape[2], x.k.shape[2], x.q.shape[3], x.v.shape[3]) == (shape.q_len, shape.kv_len, shape.d_k, shape.d_v)
    assert shape.q_len % 128 == shape.kv_len % 128 == 0


def test_features_that_are_refused_together_are_told_apart() -> None:
    def row(note: str, dtype: str = "fp32") -> Row:
        return Row(dtype, "some", "out", Outcome.REFUSED, note=note)

    rows = [
        Row("fp32", "plain", "out", Outcome.OK, 0.0),
        Row("fp16", "plain", "out", Outcome.OK, 0.0),
        row("a boolean mask refused: no masks"),
        row("a boolean mask and a scale refused: no masks"),
        row("a boolean mask and a scale refused: no masks", "fp16"),
        row("grouped heads and a scale refused: not both"),
    ]
    assert list_limits(rows[:4] + rows[5:]) == (
        "a boolean mask refused: no masks (fp32)",
        "grouped heads and a scale refused: not both (fp32)",
    )
    assert "a boolean mask and a scale refused: no masks (fp32, fp16)" in list_limits(rows)

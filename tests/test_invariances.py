"""What must not change an output, and faults under a condition: shared memory, more heads than a grid holds."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from precision.checking.api import check
from precision.checking.invariances import Invariances
from precision.checking.result import Outcome
from precision.kernel import Kernel

CPU = torch.device("cpu")


def _rows(kernel: Any) -> dict[str, tuple[Outcome, str]]:
    rows = Invariances(Kernel.of(kernel), "fp32", CPU, backward=False).rows()
    return {row.problem: (row.outcome, row.note) for row in rows}


def test_an_output_that_is_a_view_of_an_input_is_a_limit() -> None:
    def kernel(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
        if k.shape[2] == 1:
            return v.expand(-1, -1, q.shape[2], -1)
        return F.scaled_dot_product_attention(q, k, v, **call)

    assert _rows(F.scaled_dot_product_attention)["own-memory"] == (Outcome.OK, "")
    assert _rows(kernel)["own-memory"] == (Outcome.LIMIT, "the output shares memory with v")


def test_a_kernel_that_takes_its_heads_one_by_one_is_not_tried_on_more_than_a_grid_holds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    most = []

    def slow(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
        most.append(q.shape[0] * q.shape[1])
        time.sleep(0.05 if q.shape[1] > 200 else 0.0)  # 61 batches of the size would take 3 s
        return F.scaled_dot_product_attention(q, k, v, **call)

    assert _rows(slow)["large-grid"] == (Outcome.OK, "")
    assert max(most) < 65_535
    most.clear()
    monkeypatch.setattr("precision.checking.large_grid._SECONDS", 1e9)  # however busy the machine is

    def fast(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
        most.append(q.shape[0] * q.shape[1])
        return F.scaled_dot_product_attention(q, k, v, **call)

    assert _rows(fast)["large-grid"] == (Outcome.OK, "")
    assert max(most) > 65_535


def test_a_fault_under_a_condition_is_named_and_said_to_be_one() -> None:
    def kernel(q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, **call: Any) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, None if q.shape[2] == 1 else attn_mask, **call)

    def scale_lost(q: Tensor, k: Tensor, v: Tensor, scale: float | None = None, **call: Any) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, scale=None if q.shape[2] == 1 else scale, **call)

    conditional = "the one given is ignored, though not everywhere"
    for wrong, said in ((kernel, "the mask is ignored"), (scale_lost, conditional)):
        result = check(wrong, dtypes=("fp32",), device="cpu", backward=False)
        assert said in result.reasons[0], result.reasons

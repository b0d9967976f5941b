"""Backends where attention ends: no key, no query, a row that sees no key, a NaN."""

from __future__ import annotations

import math

import pytest
import torch
from backend_calls import COMPILED, HERE, TRACED, operands, prepared, with_


@pytest.mark.parametrize("method", [*HERE, TRACED, *COMPILED])
def test_no_key_at_all_gives_zeros_or_is_refused(method: str) -> None:
    with prepared(method, operands(torch.float32, lengths=(5, 0))) as call:
        assert not call().any()


@pytest.mark.parametrize("method", [*HERE, TRACED, "flex"])
def test_no_query_at_all_gives_nothing_or_is_refused(method: str) -> None:
    with prepared(method, operands(torch.float32, lengths=(0, 7))) as call:
        assert call().shape == (2, 2, 0, 8)


@pytest.mark.parametrize("method", ["triton", "sdpa", "sdpa-math", "sdpa-flash", TRACED])
def test_a_row_that_sees_no_key_is_zero(method: str) -> None:
    mask = torch.ones(5, 7, dtype=torch.bool)
    mask[2] = False
    with prepared(method, with_(operands(torch.float32), attn_mask=mask)) as call:
        out = call()
    assert not out[:, :, 2].any() and out[:, :, [0, 1, 3, 4]].all()


@pytest.mark.parametrize("method", ["triton", "jax", "onnxruntime", "sdpa-math", "eager"])
def test_a_nan_query_is_not_lost(method: str) -> None:
    x = operands(torch.float32)
    x.q[0, 0, 1, 0] = math.nan
    with prepared(method, x) as call:
        out = call()
    assert out[0, 0, 1].isnan().all() and int(out.isnan().any(-1).sum()) == 1

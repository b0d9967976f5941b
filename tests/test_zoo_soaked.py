"""Cases that random problems found: right values from what the definition says, and how they become problems."""

from dataclasses import replace

import pytest
import torch

from precision.numerics.reference import attend
from precision.zoo.case import zoo
from precision.zoo.marks import mark


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("length", [2, 8, 64])
def test_a_negative_scale_is_a_positive_one_of_negated_queries(length, dtype):
    x = zoo.build(f"causal-scale[length={length}]").operands(dtype)
    assert x.is_causal and x.scale == -0.5
    found, negated = attend(x).out, attend(replace(x, q=-x.q, scale=0.5)).out
    assert torch.equal(found, negated)
    assert torch.equal(found[:, :, 0], x.v[:, :, 0].double())  # the first query sees the first key alone


def test_a_scale_of_zero_gives_the_mean_of_the_past():
    x = zoo.build("causal-scale[scale=0,length=8]").operands("fp32")
    means = x.v.double().cumsum(2) / torch.arange(1, 9)[:, None]
    assert torch.allclose(attend(x).out, means, rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("place", ["k", "v"])
@pytest.mark.parametrize("mask", ["bool", "additive"])
def test_masked_keys_are_as_if_they_were_not_there(place, mask):
    x = zoo.build(f"padding-nan[place={place},mask={mask}]").operands("fp32")
    assert getattr(x, place).isnan().any()
    found = attend(x).out
    cut = attend(replace(x, k=x.k[:, :, :6], v=x.v[:, :, :6], attn_mask=None)).out
    assert torch.allclose(found, cut, rtol=1e-14, atol=1e-14)


def test_keys_that_take_part_still_make_an_output_nan():
    x = zoo.build("padding-nan").operands("fp32")
    assert attend(replace(x, attn_mask=None)).out.isnan().all()


def test_gradients_that_are_not_finite_beside_a_finite_output_are_a_mark_of_their_own():
    row = {
        "status": "ok",
        "inputs": "zoo/rectangle",
        "method": "compiled",
        "dtype": "bf16",
        "max_subtraction": True,
        "rows": 8,
        "d_k": 32,
    }
    found = mark({**row, "rows_nonfinite": 0, "dq_nonfinite": 3, "dv_nonfinite": 0, "out_rel_l2": 1e-3})
    assert (found.symbol, found.reason) == ("NaN", "the output is finite, but 3 elements of dq are not")
    due = mark({**row, "rows_nonfinite": 2, "rows_nan_due": 2, "rows_nan": 2, "dq_nonfinite": 3})
    assert "but" not in due.reason

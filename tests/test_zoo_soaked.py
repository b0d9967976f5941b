"""Cases that random problems found: right values from what the definition says, and how they become problems."""

from dataclasses import replace

import pytest
import torch

from precision.numerics.reference import attend
from precision.zoo.case import zoo


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("length", [2, 8, 64])
def test_a_negative_scale_is_a_positive_one_of_negated_queries(length, dtype):
    x = zoo.build(f"negative-scale[length={length}]").operands(dtype)
    assert x.is_causal and x.scale == -0.5
    found, negated = attend(x).out, attend(replace(x, q=-x.q, scale=0.5)).out
    assert torch.equal(found, negated)
    assert torch.equal(found[:, :, 0], x.v[:, :, 0].double())  # the first query sees the first key alone


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

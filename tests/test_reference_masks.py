"""The reference where masks end: rows without a key, nothing at all, and masks that mean to mask and do not."""

import math
from dataclasses import replace
from unittest.mock import patch

import pytest
import torch
from plain import DTYPES
from reference_calls import INF, assert_close, operands

import precision
from precision.numerics import scores
from precision.numerics.reference import attend


@pytest.mark.parametrize("tile", [(1, 1), (2, 2), (1024, 256)])
@pytest.mark.parametrize("additive", [False, True])
def test_fully_masked_row_is_zero(additive: bool, tile: tuple[int, int]) -> None:
    mask = torch.ones(4, 5, dtype=torch.bool)
    mask[2] = False
    x = operands(attn_mask=torch.zeros(4, 5).masked_fill(~mask, -INF) if additive else mask)
    with patch.dict(scores._TILE, cpu=tile):
        right = attend(x)
    assert right.out[0, 0, 2].tolist() == [0.0, 0.0, 0.0]
    assert right.lse[0, 0, 2] == -INF
    assert right.lse.isinf().sum() == 1
    assert_close(right, x, 1e-14)


def test_causal_never_masks_a_whole_row() -> None:
    assert attend(operands(q_len=9, kv_len=2, is_causal=True)).lse.isfinite().all()


@pytest.mark.parametrize(("batch", "q_len", "kv_len"), [(0, 3, 4), (2, 0, 4), (2, 3, 0), (2, 0, 0)])
@pytest.mark.parametrize("is_causal", [False, True])
def test_empty(batch: int, q_len: int, kv_len: int, is_causal: bool) -> None:
    q, k, v = torch.ones(batch, 2, q_len, 3), torch.ones(batch, 2, kv_len, 3), torch.ones(batch, 2, kv_len, 4)
    right = precision.reference(q, k, v, is_causal=is_causal)
    assert right.out.shape == (batch, 2, q_len, 4) and right.lse.shape == (batch, 2, q_len)
    assert (right.out == 0).all() and (right.lse == -INF).all()


@pytest.mark.parametrize("name", ["fp32", "bf16"])
def test_row_of_lowest_finite_numbers_has_uniform_weights(name: str) -> None:
    """Adding -3.4e38 leaves nothing of a logit near 1, so all logits are equal."""
    lowest = torch.finfo(DTYPES[name]).min
    x = operands(attn_mask=torch.zeros(4, 5).index_fill(0, torch.tensor(2), lowest))
    right = attend(x)
    torch.testing.assert_close(right.out[0, 0, 2], x.v[0, 0].mean(0), rtol=0, atol=1e-15)
    assert right.lse[0, 0, 2] == lowest  # ln 5 is lost in it too
    torch.testing.assert_close(right.out[0, 0, :2], attend(operands()).out[0, 0, :2], rtol=0, atol=1e-15)


def test_row_of_the_lowest_fp16_number_gives_the_unmasked_answer() -> None:
    """At 65504 a double still resolves 2^-37 of a logit, and a shift of all logits does not change their softmax."""
    x = operands()
    masked = attend(replace(x, attn_mask=torch.full((4, 5), -65504.0, dtype=torch.float16)))
    unmasked = attend(x)
    spread = float(x.v.max() - x.v.min())
    torch.testing.assert_close(masked.out, unmasked.out, rtol=0, atol=spread * 2**-38)
    torch.testing.assert_close(masked.lse, unmasked.lse - 65504, rtol=0, atol=2**-36)


@pytest.mark.parametrize("name", ["fp16", "bf16", "fp32"])
def test_lowest_finite_number_beside_zeros_masks(name: str) -> None:
    keep = torch.tensor([True, False, True, True, False])
    lowest = torch.finfo(DTYPES[name]).min
    x = operands()
    added = attend(replace(x, attn_mask=torch.where(keep, 0.0, lowest)[None]))
    torch.testing.assert_close(added.out, attend(replace(x, attn_mask=keep[None])).out, rtol=0, atol=1e-15)


def test_zeros_and_ones_are_added() -> None:
    """A 0/1 float mask is no boolean mask: it multiplies each weight by e or 1 before they are normalised."""
    q, k, v = torch.zeros(1, 1, 1, 2), torch.zeros(1, 1, 2, 2), torch.tensor([[[[0.0], [1.0]]]])
    out = precision.reference(q, k, v, attn_mask=torch.tensor([[0.0, 1.0]])).out
    assert out.item() == pytest.approx(math.e / (1 + math.e), rel=1e-15)


def test_minus_ten_thousand_does_not_mask_logits_below_it() -> None:
    q, k = torch.tensor([[[[1.0]]]]), torch.tensor([[[[-22500.0], [0.0]]]])
    v = torch.tensor([[[[1.0], [2.0]]]])
    assert precision.reference(q, k, v, attn_mask=torch.tensor([[0.0, -1e4]])).out.item() == 2.0

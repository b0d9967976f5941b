"""The reference and numbers that are not finite, or not in fp32: how far each of them reaches."""

import math
from dataclasses import replace
from unittest.mock import patch

import pytest
import torch
from draws import normal
from hypothesis import given
from hypothesis import strategies as st
from plain import any_operands, plain_attention
from reference_calls import INF, NAN, SMALL_TILES, operands

import precision
from precision.numerics import scores
from precision.numerics.reference import attend
from precision.operands import Operands


@pytest.mark.parametrize("tile", [(1, 1), (2, 2), (1024, 256)])
def test_nan_in_a_query_stays_in_its_row(tile: tuple[int, int]) -> None:
    x = operands()
    x.q[0, 0, 1, 2] = NAN
    with patch.dict(scores._TILE, cpu=tile):
        right = attend(x)
    rows = right.out.isnan().all(-1)[0, 0]
    assert rows.tolist() == [False, True, False, False] == right.lse.isnan()[0, 0].tolist()
    assert right.out[0, 0, [0, 2, 3]].isfinite().all()


@pytest.mark.parametrize("tile", [(1, 1), (2, 2), (1024, 256)])
def test_nan_in_a_key_spreads_to_every_row_that_sees_it(tile: tuple[int, int]) -> None:
    x = operands(is_causal=True)
    x.k[0, 0, 2, 0] = NAN
    with patch.dict(scores._TILE, cpu=tile):
        right = attend(x)
    assert right.out.isnan().all(-1)[0, 0].tolist() == [False, False, True, True]
    assert torch.equal(right.lse.isnan(), right.out.isnan().all(-1))
    before = attend(replace(x, q=x.q[:, :, :2]))
    torch.testing.assert_close(right.out[:, :, :2], before.out, rtol=0, atol=1e-15)


@pytest.mark.parametrize("tile", [(1, 1), (2, 2), (1024, 256)])
@pytest.mark.parametrize("bad", [NAN, INF, -INF])
def test_nonfinite_value_stays_in_its_column_and_in_rows_that_see_it(bad: float, tile: tuple[int, int]) -> None:
    x = operands(is_causal=True)
    x.v[0, 0, 2, 1] = bad
    with patch.dict(scores._TILE, cpu=tile):
        out = attend(x).out[0, 0]
    expected = torch.full((2,), bad, dtype=torch.float64)
    torch.testing.assert_close(out[2:, 1], expected, equal_nan=True)
    out[2:, 1] = 0
    assert out.isfinite().all()


@given(x=any_operands(), tile=SMALL_TILES, bad=st.sampled_from([NAN, INF, -INF]), where=st.sampled_from(["k", "v"]))
def test_a_masked_key_takes_no_part_whatever_it_holds(
    x: Operands, tile: tuple[int, int], bad: float, where: str
) -> None:
    """Nothing of a key that no row sees reaches the output, and a row that sees none of the bad key stays as it was."""
    clean = attend(x)
    seen = plain_attention(x).seen[..., -1]  # the rows that see the last key
    tainted = {"k": x.k.clone(), "v": x.v.clone()}
    tainted[where][:, :, -1] = bad
    with patch.dict(scores._TILE, cpu=tile):
        right = attend(replace(x, **tainted))
    torch.testing.assert_close(right.out[~seen], clean.out[~seen], rtol=0, atol=2e-12)
    torch.testing.assert_close(right.lse[~seen], clean.lse[~seen], rtol=2e-13, atol=2e-13)
    if where == "v":
        torch.testing.assert_close(right.lse, clean.lse, rtol=2e-13, atol=2e-13)
        assert not right.out[seen].isfinite().any()


def test_infinite_logit_is_nan_out_and_infinite_lse() -> None:
    """exp(inf)/inf is NaN, but the log of the sum of exponentials is inf."""
    x = operands(attn_mask=torch.zeros(4, 5).index_put((torch.tensor(1), torch.tensor(3)), torch.tensor(INF)))
    for tile in ((1, 1), (2, 2), (1024, 256)):
        with patch.dict(scores._TILE, cpu=tile):
            right = attend(x)
        assert right.out.isnan().all(-1)[0, 0].tolist() == [False, True, False, False]
        assert right.lse[0, 0, 1] == INF
        assert right.lse.isfinite().sum() == 3


def test_key_of_minus_infinite_logit_has_no_weight() -> None:
    q, k = torch.ones(1, 1, 1, 2), torch.tensor([[[[-INF, 0.0], [0.0, 0.0], [0.0, 0.0]]]])
    v = torch.tensor([[[[9.0], [1.0], [2.0]]]])
    right = precision.reference(q, k, v)
    assert right.out.item() == 1.5
    assert right.lse.item() == pytest.approx(math.log(2), rel=1e-15)


def test_equal_logits_beyond_fp32_give_the_mean() -> None:
    q, k, v = torch.full((1, 1, 2, 4), 1e20), torch.full((1, 1, 3, 4), -1e20), normal(1, 1, 3, 4).float()
    out = precision.reference(q, k, v).out
    torch.testing.assert_close(out, v.double().mean(2, keepdim=True).expand(-1, -1, 2, -1), rtol=0, atol=1e-15)


def test_scores_beyond_fp32_that_the_scale_brings_back() -> None:
    q, k = torch.full((1, 1, 1, 1), 2e19), torch.tensor([[[[3e19], [1e19]]]])  # q.k = 6e38
    v = torch.tensor([[[[5.0], [7.0]]]])
    assert precision.reference(q, k, v, scale=0.25).out.item() == 5.0

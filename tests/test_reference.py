"""The fp64 reference against a second algorithm, against 50 digits, and at the edges of the definition."""

import math
from dataclasses import replace
from unittest.mock import patch

import mpmath
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from plain import DTYPES, any_operands, plain_attention
from torch import Tensor

import precision
from precision.errors import UsageError
from precision.numerics import scores
from precision.numerics.reference import Reference, attend
from precision.operands import Operands

INF, NAN = math.inf, math.nan
SMALL_TILES = st.sampled_from([(1, 1), (3, 2), (2, 5), (1024, 256)])


def normal(*shape: int, seed: int = 0, std: float = 1.0) -> Tensor:
    return std * torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def operands(heads: int = 1, q_len: int = 4, kv_len: int = 5, d: int = 3, **switches: object) -> Operands:
    q, k, v = normal(1, heads, q_len, d), normal(1, heads, kv_len, d, seed=1), normal(1, heads, kv_len, d, seed=2)
    return replace(Operands(q, k, v), **switches)


def assert_close(right: Reference, x: Operands, tolerance: float) -> None:
    plain = plain_attention(x)
    assert right.out.dtype == right.lse.dtype == torch.float64
    torch.testing.assert_close(right.out, plain.out, rtol=0, atol=tolerance * float(x.v.double().abs().max()))
    torch.testing.assert_close(right.lse, plain.lse, rtol=tolerance, atol=tolerance)


# A second algorithm


@given(x=any_operands(), tile=SMALL_TILES)
def test_is_the_definition_on_every_kind_of_call(x: Operands, tile: tuple[int, int]) -> None:
    with patch.dict(scores._TILE, cpu=tile):
        # A logit of size 300 is off by 300 u d_k, and its weight by as much: 300 x 1.1e-16 x 6 = 2e-13.
        assert_close(attend(x), x, 2e-13)


@pytest.mark.parametrize("kind", ["none", "causal", "bool", "additive"])
@pytest.mark.parametrize(("q_len", "kv_len"), [(3, 255), (2, 256), (3, 257), (1023, 7), (1024, 6), (1025, 258)])
def test_is_the_definition_beside_the_edges_of_tiles(kind: str, q_len: int, kv_len: int) -> None:
    x = operands(q_len=q_len, kv_len=kv_len, is_causal=kind == "causal")
    if kind == "bool":
        x = replace(x, attn_mask=normal(q_len, kv_len) < 0.5)
    elif kind == "additive":
        x = replace(x, attn_mask=normal(q_len, kv_len))
    assert_close(attend(x), x, 1e-13)


def test_tiles_change_only_the_rounding() -> None:
    x = operands(q_len=1025, kv_len=1023, is_causal=True)
    with patch.dict(scores._TILE, cpu=(401, 113)):
        tiled = attend(x)
    torch.testing.assert_close(tiled.out, attend(x).out, rtol=0, atol=1e-14)


# Fifty digits


@pytest.mark.parametrize(
    ("std", "d", "kv_len", "tolerance"),
    [(1.0, 64, 300, 1e-14), (1.0, 16, 1025, 1e-14), (18.0, 64, 300, 1e-12), (16.0, 16, 513, 1e-12)],
)
def test_error_against_fifty_digits(std: float, d: int, kv_len: int, tolerance: float) -> None:
    q, k = normal(1, 1, 40, d, std=std), normal(1, 1, kv_len, d, seed=1, std=std)
    v = normal(1, 1, kv_len, 5, seed=2)
    if tolerance > 1e-14:
        assert 1000 < float((q @ k.mT).abs().max()) / math.sqrt(d) < 2000
    right = attend(Operands(q, k, v))
    for row in (0, 13, 39):
        out, lse = fifty_digits(q[0, 0, row], k[0, 0], v[0, 0])
        errors = [abs(a - b) for a, b in zip(right.out[0, 0, row].tolist(), out, strict=True)]
        assert max(errors) <= tolerance * float(v.abs().max())
        assert abs(right.lse[0, 0, row].item() - lse) <= tolerance


def fifty_digits(q: Tensor, k: Tensor, v: Tensor) -> tuple[list[mpmath.mpf], mpmath.mpf]:
    """out and lse of one row; the scale is the double nearest to 1/sqrt(d), as any fp64 code has it."""
    with mpmath.workdps(50):
        scale = mpmath.mpf(1 / math.sqrt(len(q)))
        powers = [mpmath.exp(scale * mpmath.fdot(zip(q.tolist(), key, strict=True))) for key in k.tolist()]
        total = mpmath.fsum(powers)
        out = [mpmath.fdot(zip(powers, column, strict=True)) / total for column in v.T.tolist()]
        return out, mpmath.log(total)


# Which number is computed


@pytest.mark.parametrize("name", DTYPES)
def test_takes_inputs_as_given(name: str) -> None:
    q, k, v = (normal(1, 2, 6, 4, seed=seed).to(DTYPES[name]) for seed in range(3))
    given_as_is = precision.reference(q, k, v)
    assert torch.equal(given_as_is.out, precision.reference(q.double(), k.double(), v.double()).out)


def test_default_scale_is_one_over_root_of_width() -> None:
    x = operands(d=3)
    assert torch.equal(attend(x).out, attend(replace(x, scale=1 / math.sqrt(3))).out)


def test_grouped_heads_follow_repeat_interleave() -> None:
    q, k, v = normal(1, 6, 3, 4), normal(1, 2, 5, 4, seed=1), normal(1, 2, 5, 4, seed=2)
    grouped = precision.reference(q, k, v, enable_gqa=True)
    repeated = precision.reference(q, k.repeat_interleave(3, 1), v.repeat_interleave(3, 1))
    assert torch.equal(grouped.out, repeated.out)


def test_leaves_its_inputs_alone_and_keeps_no_graph() -> None:
    x = operands(attn_mask=normal(4, 5, seed=3))
    before = [t.clone() for t in (x.q, x.k, x.v, x.attn_mask) if t is not None]
    for tensor in (x.q, x.k, x.v):
        tensor.requires_grad_()
    assert not attend(x).out.requires_grad
    assert all(torch.equal(a, b) for a, b in zip(before, (x.q, x.k, x.v, x.attn_mask), strict=True))


@pytest.mark.parametrize(("q_len", "kv_len"), [(5, 8), (8, 5), (1, 8)])
def test_causal_is_aligned_top_left(q_len: int, kv_len: int) -> None:
    """With all logits equal, row i is the mean of the values 0..i."""
    q, k, v = torch.zeros(1, 1, q_len, 2), torch.zeros(1, 1, kv_len, 2), normal(1, 1, kv_len, 3)
    out = precision.reference(q, k, v, is_causal=True).out
    for i in range(q_len):
        torch.testing.assert_close(out[0, 0, i], v[0, 0, : i + 1].mean(0), rtol=0, atol=1e-15)


# Rows without a key


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


# Additive masks that mean to mask and do not


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


# Numbers that are not finite


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


@pytest.mark.parametrize("scale", [0.0, -2.0, 1e-300])
def test_unusual_scales_are_right(scale: float) -> None:
    x = operands(scale=scale)
    assert_close(attend(x), x, 1e-14)


def test_zero_scale_is_the_mean() -> None:
    x = operands(scale=0.0)
    right = attend(x)
    torch.testing.assert_close(right.out, x.v.mean(2, keepdim=True).expand(-1, -1, 4, -1), rtol=0, atol=1e-15)
    torch.testing.assert_close(right.lse, torch.full_like(right.lse, math.log(5)), rtol=1e-15, atol=0)


@pytest.mark.parametrize("scale", [NAN, INF, -INF])
def test_nonfinite_scale_is_nan(scale: float) -> None:
    assert attend(operands(scale=scale)).out.isnan().all()


# Failures that people met


def test_equal_logits_beyond_fp32_give_the_mean() -> None:
    q, k, v = torch.full((1, 1, 2, 4), 1e20), torch.full((1, 1, 3, 4), -1e20), normal(1, 1, 3, 4).float()
    out = precision.reference(q, k, v).out
    torch.testing.assert_close(out, v.double().mean(2, keepdim=True).expand(-1, -1, 2, -1), rtol=0, atol=1e-15)


def test_scores_beyond_fp32_that_the_scale_brings_back() -> None:
    q, k = torch.full((1, 1, 1, 1), 2e19), torch.tensor([[[[3e19], [1e19]]]])  # q.k = 6e38
    v = torch.tensor([[[[5.0], [7.0]]]])
    assert precision.reference(q, k, v, scale=0.25).out.item() == 5.0


# What is refused


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"q": normal(2, 4, 3)}, "unsqueeze"),
        ({"v": normal(1, 5, 3)}, "unsqueeze"),
        ({"q": normal(2, 2, 4, 3)}, "batch, kv_heads, kv_len and d_k must agree"),
        ({"k": normal(1, 2, 5, 4)}, "must agree"),
        ({"k": normal(1, 2, 6, 3)}, "must agree"),
        ({"v": normal(1, 1, 5, 3)}, "must agree"),
        ({"q": normal(1, 4, 4, 3)}, "enable_gqa=True"),
        ({"q": normal(1, 3, 4, 3), "enable_gqa": True}, "no multiple of the 2 heads"),
        ({"k": normal(1, 0, 5, 3), "v": normal(1, 0, 5, 3), "enable_gqa": True}, "at least one head"),
        ({"q": normal(1, 2, 4, 0), "k": normal(1, 2, 5, 0)}, "width d_k of 1 or more"),
        ({"q": torch.ones(1, 2, 4, 3, dtype=torch.int64)}, "convert them to a float dtype"),
        ({"attn_mask": torch.ones(4, 5, dtype=torch.bool), "is_causal": True}, "not both"),
        ({"attn_mask": torch.ones(4, 5, dtype=torch.int32)}, "must be boolean or floating"),
        ({"attn_mask": torch.ones(4, 4, dtype=torch.bool)}, r"does not broadcast to \(1, 2, 4, 5\)"),
        ({"attn_mask": torch.ones(3, 4, 5, dtype=torch.bool)}, "does not broadcast"),
        ({"attn_mask": torch.ones(1, 1, 2, 4, 5, dtype=torch.bool)}, "does not broadcast"),
    ],
)
def test_calls_that_make_no_sense(change: dict[str, object], message: str) -> None:
    call = {"q": normal(1, 2, 4, 3), "k": normal(1, 2, 5, 3), "v": normal(1, 2, 5, 3)} | change
    with pytest.raises(UsageError, match=message):
        precision.reference(**call)

"""Which numbers the reference computes: its scale, heads and alignment, and the calls that it refuses."""

import math
from dataclasses import replace

import pytest
import torch
from draws import normal
from plain import DTYPES
from reference_calls import INF, NAN, assert_close, operands

import precision
from precision.errors import UsageError
from precision.numerics.reference import attend


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

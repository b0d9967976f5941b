"""The fp64 gradients: against autograd of the plain definition, finite differences in mpmath, and limiting cases."""

from __future__ import annotations

import mpmath
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

import precision
from precision.errors import UsageError
from precision.numerics import scores
from precision.numerics.gradients import Gradients
from precision.numerics.reference import Reference, attend
from precision.operands import Operands

DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five query rows by three keys, so that small problems have many tiles and ragged edges."""
    monkeypatch.setattr(scores, "_TILE", {"cpu": (5, 3)})


def draw(*size: int, seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def autograd(x: Operands, do: Tensor) -> Gradients:
    """A second algorithm: the softmax as written, with all weights at once, differentiated by torch."""
    leaves = [tensor.detach().double().requires_grad_() for tensor in (x.q, x.k, x.v)]
    q, k, v = leaves
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    logits = q @ k.mT * x.scale_value
    seen = torch.ones(logits.shape[-2:], dtype=torch.bool)
    if x.is_causal:
        seen = seen.tril()
    if x.attn_mask is not None:
        if x.attn_mask.dtype == torch.bool:
            seen = seen & x.attn_mask
        else:
            seen = seen & (x.attn_mask != -torch.inf)
            logits = logits + x.attn_mask.double().where(x.attn_mask != -torch.inf, 0.0)
    # A row that sees no key is set to 0 after a softmax over all of its keys, whose gradient is then cut off.
    some = seen.any(-1, keepdim=True)
    weights = torch.where(some, logits.masked_fill(~seen & some, -torch.inf).softmax(-1), 0.0)
    return Gradients(*torch.autograd.grad(weights @ v, leaves, do.double()))


def assert_close(found: Gradients, right: Gradients) -> None:
    """To a few hundred roundings of fp64 at the size of each tensor."""
    for name in ("dq", "dk", "dv"):
        left, wanted = getattr(found, name), getattr(right, name)
        assert left.dtype == torch.float64 and left.shape == wanted.shape
        size = float(wanted.abs().max()) if wanted.numel() else 0.0
        torch.testing.assert_close(left, wanted, rtol=0, atol=1e-13 * (1 + size))


@st.composite
def calls(make) -> tuple[Operands, Tensor]:  # type: ignore[no-untyped-def]
    """Any shape up to a few tiles, with every kind of mask, grouping, layout and dtype."""
    seed = make(st.integers(0, 2**16))
    dtype = make(st.sampled_from(DTYPES))
    batch, kv_heads, group = make(st.integers(1, 2)), make(st.integers(1, 2)), make(st.integers(1, 3))
    q_len, kv_len = make(st.integers(1, 13)), make(st.integers(1, 10))
    d_k, d_v = make(st.integers(1, 5)), make(st.integers(1, 5))
    q = draw(batch, group * kv_heads, q_len, d_k, seed=seed, dtype=dtype)
    k = draw(batch, kv_heads, kv_len, d_k, seed=seed + 1, dtype=dtype)
    v = draw(batch, kv_heads, kv_len, d_v, seed=seed + 2, dtype=dtype)
    do = draw(*q.shape[:3], d_v, seed=seed + 3, dtype=dtype)
    if make(st.booleans()):  # lengths before heads, as a projection leaves them
        q, k, v = (tensor.transpose(1, 2).contiguous().transpose(1, 2) for tensor in (q, k, v))
    if make(st.booleans()):  # a view that starts elsewhere and has gaps
        k = torch.cat([k, k], -1)[..., d_k:]
    if make(st.booleans()):  # stride 0
        v = v[:, :, :1].expand_as(v)
    kind = make(st.sampled_from(["none", "causal", "bool", "additive"]))
    mask = None
    if kind in ("bool", "additive"):
        heads = make(st.sampled_from([1, q.shape[1]]))
        mask = draw(batch, heads, q_len, kv_len, seed=seed + 4, dtype=dtype)
        kept = draw(batch, heads, q_len, kv_len, seed=seed + 5) < 0.5
        mask = kept if kind == "bool" else mask.masked_fill(~kept, -torch.inf)
    scale = make(st.sampled_from([None, 1.0, 0.0, -0.7]))
    return Operands(q, k, v, mask, kind == "causal", scale), do


@settings(
    max_examples=120, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(calls())
def test_autograd_of_the_definition_agrees(call: tuple[Operands, Tensor]) -> None:
    x, do = call
    assert_close(attend(x).backward(do), autograd(x, do))


def test_finite_differences_in_fifty_digits_agree() -> None:
    # (f(t + h) - f(t - h)) / 2h errs by h^2 f'''/6, about 1e-30 here, and by 1e-50 / h from rounding.
    q, k, v, do = draw(1, 1, 2, 2, seed=1), draw(1, 1, 3, 2, seed=2), draw(1, 1, 3, 2, seed=3), draw(1, 1, 2, 2, seed=4)
    found = attend(Operands(q, k, v, scale=0.6)).backward(do)
    inputs = [[[mpmath.mpf(float(e)) for e in row] for row in tensor[0, 0]] for tensor in (q, k, v)]
    with mpmath.workdps(50):
        step = mpmath.mpf(10) ** -15

        def loss() -> mpmath.mpf:
            rows_q, rows_k, rows_v = inputs
            total = mpmath.mpf(0)
            for i, row in enumerate(rows_q):
                weights = [mpmath.exp(mpmath.mpf(0.6) * mpmath.fdot(row, key)) for key in rows_k]
                for c in range(2):
                    out = mpmath.fdot(weights, [value[c] for value in rows_v]) / mpmath.fsum(weights)
                    total += float(do[0, 0, i, c]) * out
            return total

        for rows, gradient in zip(inputs, (found.dq, found.dk, found.dv), strict=True):
            for i, row in enumerate(rows):
                for c, at in enumerate(row):
                    row[c] = at + step
                    above = loss()
                    row[c] = at - step
                    below = loss()
                    row[c] = at
                    assert abs((above - below) / (2 * step) - float(gradient[0, 0, i, c])) < 1e-15


def test_weights_survive_logits_beyond_the_digits_of_lse() -> None:
    # All logits are -4e40, where lse = max + log 8 rounds to max: the weights are 1/8 all the same.
    q = torch.full((1, 1, 1, 4), 1e20)
    do = draw(1, 1, 1, 4, seed=1)
    x = Operands(q, -q.expand(1, 1, 8, 4), draw(1, 1, 8, 4, seed=2), scale=1.0)
    torch.testing.assert_close(attend(x).backward(do).dv, (do / 8).expand(1, 1, 8, 4), rtol=1e-15, atol=0)


@pytest.mark.parametrize("absent", ["masked", "causal"])
def test_what_takes_no_part_counts_nowhere(absent: str) -> None:
    q, k, v, do = (draw(1, 1, 4, 3, seed=seed) for seed in range(4))
    mask = torch.ones(4, 4, dtype=torch.bool).tril()
    causal = absent == "causal"
    right = autograd(Operands(q, k[:, :, :3], v[:, :, :3], mask[:, :3]), do)
    if not causal:
        mask[:, 3] = False
    k[0, 0, 3, 1], v[0, 0, 3, 0] = torch.nan, torch.inf
    found = attend(Operands(q, k, v, None if causal else mask, causal)).backward(do)
    rows = slice(0, 3) if causal else slice(0, 4)  # the last row of the causal problem does see the last key
    torch.testing.assert_close(found.dq[:, :, rows], right.dq[:, :, rows], rtol=0, atol=1e-14)
    if causal:
        assert found.dq[0, 0, 3].isnan().all()
    else:
        torch.testing.assert_close(found.dk[:, :, :3], right.dk, rtol=0, atol=1e-14)
        torch.testing.assert_close(found.dv[:, :, :3], right.dv, rtol=0, atol=1e-14)
        assert not found.dk[0, 0, 3].any() and not found.dv[0, 0, 3].any()


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_a_bad_query_row_spoils_its_own_dq_only(value: float) -> None:
    q, k, v, do = (draw(1, 1, 7, 3, seed=seed).abs() for seed in range(4))
    clean = attend(Operands(q, k, v)).backward(do)
    q[0, 0, 2, 1] = value
    found = attend(Operands(q, k, v)).backward(do)
    assert found.dq[0, 0, 2].isnan().all() and found.dk.isnan().all() and found.dv.isnan().all()
    others = [0, 1, 3, 4, 5, 6]
    assert torch.equal(found.dq[:, :, others], clean.dq[:, :, others])


def test_a_row_that_sees_no_key_has_no_gradient_and_gives_none() -> None:
    q, k, v, do = (draw(1, 1, 4, 3, seed=seed) for seed in range(4))
    mask = torch.ones(4, 4, dtype=torch.bool)
    mask[1] = False
    found = attend(Operands(q, k, v, mask)).backward(do)
    others = [0, 2, 3]
    right = autograd(Operands(q[:, :, others], k, v), do[:, :, others])
    assert not found.dq[0, 0, 1].any()
    assert_close(Gradients(found.dq[:, :, others], found.dk, found.dv), right)


@pytest.mark.parametrize(("q_len", "kv_len", "batch"), [(0, 4, 1), (4, 0, 1), (4, 4, 0)])
def test_empty_problems_give_zeros_of_the_right_shape(q_len: int, kv_len: int, batch: int) -> None:
    q, kv = torch.zeros(batch, 2, q_len, 3), torch.ones(batch, 1, kv_len, 3)
    found = precision.reference(q, kv, kv, enable_gqa=True).backward(torch.ones(batch, 2, q_len, 3))
    assert found.dq.shape == q.shape and found.dk.shape == kv.shape and found.dv.shape == kv.shape
    assert not any(gradient.any() for gradient in (found.dq, found.dk, found.dv))


@pytest.mark.parametrize("dtype", DTYPES)
def test_tensors_count_as_given(dtype: torch.dtype) -> None:
    tensors = [draw(2, 2, 6, 4, seed=seed, dtype=dtype) for seed in range(4)]
    q, k, v, do = tensors
    wide = [tensor.double() for tensor in tensors]
    found, right = attend(Operands(q, k, v)).backward(do), attend(Operands(*wide[:3])).backward(wide[3])
    assert torch.equal(found.dq, right.dq) and torch.equal(found.dk, right.dk) and torch.equal(found.dv, right.dv)


def test_the_inputs_stay_as_they_are_and_out_of_autograd() -> None:
    q, k, v = (draw(1, 1, 6, 4, seed=seed).requires_grad_() for seed in range(3))
    do = draw(1, 1, 6, 4, seed=3)
    before = [tensor.detach().clone() for tensor in (q, k, v, do)]
    found = attend(Operands(q, k, v)).backward(do)
    assert not found.dq.requires_grad
    assert all(torch.equal(tensor, copy) for tensor, copy in zip((q, k, v, do), before, strict=True))


@pytest.mark.parametrize(
    ("do", "message"),
    [(torch.ones(1, 1, 4, 2), "shape of out"), (torch.full((1, 1, 4, 3), torch.nan), "not finite")],
)
def test_a_do_that_makes_no_sense_is_refused(do: Tensor, message: str) -> None:
    x = torch.ones(1, 1, 4, 3)
    result: Reference = precision.reference(x, x, x)
    with pytest.raises(UsageError, match=message):
        result.backward(do)

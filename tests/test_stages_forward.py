"""The forward pass of a plan: right in fp64 in every order of operations, and rounded where the plan says only."""

import math
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from draws import normal
from hypothesis import given
from hypothesis import strategies as st
from plain import any_operands, plain_attention
from torch import Tensor

from precision.backends.eager import Eager
from precision.errors import UsageError
from precision.numerics.rounding import round_to
from precision.operands import Operands
from precision.stages.forward import attend
from precision.stages.plan import Plan
from precision.stages.presets import PLANS
from precision.stages.rounder import Seen
from precision.threads import one_thread

ORDERS = {
    "textbook": Plan(normalise="before"),
    "scale before": Plan(scale="before"),
    "scale on both": Plan(scale="both", normalise="before"),
    "powers of two": Plan(exp="exp2"),
    "no maximum": Plan(max="none"),
    "tiles": Plan(block=3),
    "running maximum": Plan(max="online", block=3),
    "running maximum, one key a tile": Plan(max="online", block=1, scale="before"),
    "stale maximum": Plan(max="stale", block=2, stale=1.0),
    "chunks": Plan(s_chunk=2, l_chunk=2, pv_chunk=3, max="online", block=5),
}


@given(x=any_operands(), plan=st.sampled_from(list(ORDERS.values())))
def test_exact_stages_give_attention_in_any_order(x: Operands, plan: Plan) -> None:
    done, plain = attend(plan, x), plain_attention(x)
    torch.testing.assert_close(done.out, plain.out, rtol=0, atol=1e-12)
    torch.testing.assert_close(done.lse, plain.lse, rtol=0, atol=1e-12)


def test_a_rotation_changes_nothing_but_the_roundings() -> None:
    q, k = normal(1, 2, 9, 16, seed=1), normal(1, 2, 8, 16, seed=2)
    k[..., 3] *= 100.0
    x = Operands(q, k, normal(1, 2, 8, 4, seed=3))
    torch.testing.assert_close(attend(Plan(rotate=True), x).out, plain_attention(x).out, rtol=0, atol=1e-12)
    seen: dict[str, Tensor] = {}
    attend(Plan(rotate=True), x, lambda stage: seen.update({stage.stage: stage.before.clone()}))
    torch.testing.assert_close(seen["k"].norm(dim=-1), k.norm(dim=-1))  # orthogonal
    assert seen["k"].abs().max() < 0.5 * k.abs().max()  # the outlier is spread


def test_a_rotation_of_another_width_is_refused() -> None:
    with pytest.raises(UsageError, match="d_k is 12"):
        attend(Plan(rotate=True), Operands(normal(1, 1, 2, 12), normal(1, 1, 3, 12), normal(1, 1, 3, 12)))


def test_no_key_is_refused() -> None:
    with pytest.raises(UsageError, match="a softmax needs a key"):
        attend(Plan(), Operands(normal(1, 1, 2, 4), normal(1, 1, 0, 4), normal(1, 1, 0, 4)))


# Roundings, against the same stages in numpy


def whole(*shape: int, seed: int, top: int) -> Tensor:
    """Multiples of 1/4 whose products and sums are exact in fp32, so that the order of a sum cannot matter."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-top, top + 1, shape, generator=generator).half() / 4


STAGED = Operands(
    whole(1, 2, 9, 16, seed=0, top=4),
    whole(1, 2, 14, 16, seed=1, top=4),
    whole(1, 2, 14, 5, seed=2, top=4),
    whole(9, 14, seed=3, top=3),
    scale=0.3,
)


def half(values: np.ndarray) -> np.ndarray:
    return values.astype(np.float16).astype(np.float64)


def online_in_numpy(x: Operands, rounded: str, block: int) -> np.ndarray:
    """FlashAttention's loop in numpy, where the stage of that name is rounded to fp16."""

    def stage(name: str, values: np.ndarray) -> np.ndarray:
        return half(values) if name == rounded else values

    assert x.attn_mask is not None
    q, k, v, mask = (t.double().numpy() for t in (x.q, x.k, x.v, x.attn_mask))
    s = stage("masked", stage("scaled", stage("s", stage("s_acc", q @ k.swapaxes(-1, -2))) * 0.3) + mask)
    out = np.zeros((*q.shape[:3], v.shape[-1]))
    for b, h, i in np.ndindex(*q.shape[:3]):
        m, total, acc = -np.inf, 0.0, np.zeros(v.shape[-1])
        for start in range(0, k.shape[2], block):
            keys = slice(start, start + block)
            new = stage("m", np.maximum(m, s[b, h, i, keys].max()))
            alpha = stage("alpha", np.exp(m - new))
            e = stage("e", np.exp(stage("shifted", s[b, h, i, keys] - new)))
            total = stage("l", alpha * total + e.sum())
            acc = stage("pv", stage("pv_acc", alpha * acc + stage("p", e) @ v[b, h, keys]))
            m = new
        out[b, h, i] = stage("out", acc / total)
    return out


@pytest.mark.parametrize(
    "stage", ["s_acc", "s", "scaled", "masked", "m", "shifted", "e", "alpha", "l", "p", "pv_acc", "pv", "out"]
)
def test_each_stage_is_rounded_by_itself(stage: str) -> None:
    plan = Plan(max="online", block=4).rounded("fp16", stage)
    found, expected = attend(plan, STAGED).out.numpy(), online_in_numpy(STAGED, stage, 4)
    np.testing.assert_allclose(found, expected, rtol=1e-13, atol=1e-14)  # fp64 sums in another order
    exact = attend(plan.without(stage), STAGED).out.numpy()
    # These sums are numbers of fp16, and a maximum cancels whatever it is.
    assert stage in ("s_acc", "s", "m") or np.abs(found - exact).max() > 1e-6


@pytest.mark.parametrize("name", ["fp16", "bf16"])
@pytest.mark.parametrize(
    ("method", "plan"),
    [
        (Eager(), PLANS["eager"]),
        (Eager(scale="before"), PLANS["eager-before"]),
        (Eager(max_subtraction=False), replace(PLANS["eager"], max="none")),
    ],
    ids=["after", "before", "no maximum"],
)
def test_the_eager_plan_is_the_eager_backend_bit_for_bit(method: Eager, plan: Plan, name: str) -> None:
    """Where the products' sums are exact, so that torch's order of adding cannot matter."""
    dtype = {"fp16": torch.float16, "bf16": torch.bfloat16}[name]
    x = Operands(*(t.to(dtype) for t in (STAGED.q, STAGED.k, STAGED.v, whole(9, 14, seed=3, top=3))), scale=0.3)
    with method.prepare(x) as call:
        assert torch.equal(round_to(attend(plan, x).out, name), call())


# Accumulators: in bf16, whose significand has 8 bits, 256 + 1 = 256


def ones(rows: int, columns: int) -> Tensor:
    return torch.ones(1, 1, rows, columns, dtype=torch.float64)


@pytest.mark.parametrize(("chunk", "total"), [(0, 1000.0), (1, 256.0), (2, 512.0), (4, 1000.0)])
def test_a_score_stagnates_where_its_accumulator_is_narrow(chunk: int, total: float) -> None:
    """q.k is a sum of 1000 ones; 512 + 2 is a tie that goes to 512, and 1000 is a number of bf16."""
    scores: list[Tensor] = []

    def watch(seen: Seen) -> None:
        if seen.stage == "s":
            scores.append(seen.after.clone())

    attend(Plan(s_acc="bf16", s_chunk=chunk), Operands(ones(1, 1000), ones(1, 1000), ones(1, 1)), watch)
    assert scores[0].item() == total


@pytest.mark.parametrize(
    ("options", "out"),
    [
        ({"l": "bf16", "l_chunk": 1}, 1000 / 256),
        ({"l": "bf16", "l_chunk": 4}, 1.0),
        ({"pv_acc": "bf16", "pv_chunk": 1}, 256 / 1000),
        ({"pv": "bf16", "block": 2}, 512 / 1000),
        ({"pv": "bf16", "block": 1, "max": "online"}, 256 / 1000),
        ({"l": "bf16", "block": 2, "max": "stale"}, 1000 / 512),
        ({"pv_acc": "bf16:truncate", "pv_chunk": 3}, 512 / 1000),
    ],
    ids=str,
)
def test_sums_over_the_keys_stagnate_where_they_are_narrow(options: dict[str, Any], out: float) -> None:
    """1000 equal keys and values of 1: l and P V are sums of 1000 ones.

    By threes and toward zero: 255, 258, 260, 262, ..., 510, 512, and 515 goes to 512 for ever.
    """
    x = Operands(ones(1, 4), ones(1000, 4), ones(1000, 1))
    assert attend(Plan(**options), x).out.item() == out


# The maximum


def logits_of(rows: list[list[float]]) -> Operands:
    """One query a row whose logits are these numbers; the values are 0, 1, 2, ..."""
    mask = torch.tensor(rows, dtype=torch.float64)
    v = torch.arange(mask.shape[1], dtype=torch.float64)[None, None, :, None]
    return Operands(0 * ones(mask.shape[0], 4), ones(mask.shape[1], 4), v, mask)


def watched(plan: Plan, x: Operands, stage: str) -> Tensor:
    """What the stage held, of the one block of rows there is."""
    found: list[Tensor] = []

    def watch(seen: Seen) -> None:
        if seen.stage == stage:
            found.append(seen.after.clone())

    attend(plan, x, watch)
    return found[0][0, 0]


ROWS = [[0.0, 1.0, 5.0, 7.0, 6.0], [3.0, 1.0, 8.0, 8.5, 20.0], [-math.inf, 0.0, 1.0, 2.0, 3.0]]


@pytest.mark.parametrize(
    ("options", "maxima"),
    [
        ({"max": "exact", "block": 2}, [[7, 7, 7], [20, 20, 20], [3, 3, 3]]),
        ({"max": "none", "block": 2}, [[0, 0, 0]] * 3),
        ({"max": "online", "block": 2}, [[1, 7, 7], [3, 8.5, 20], [0, 2, 3]]),
        # 8 powers of two are 5.545 in the exponent: 1 -> 7 is more, 3 -> 8.5 is less, 3 -> 20 is more.
        ({"max": "stale", "block": 2}, [[1, 7, 7], [3, 3, 20], [0, 0, 0]]),
        ({"max": "stale", "block": 2, "stale": 0.0}, [[1, 7, 7], [3, 8.5, 20], [0, 2, 3]]),
    ],
    ids=str,
)
def test_the_maximum_that_each_tile_subtracts(options: dict[str, Any], maxima: list[list[float]]) -> None:
    plan = Plan(**options)
    assert watched(plan, logits_of(ROWS), "m").tolist() == maxima
    right = plain_attention(logits_of(ROWS))
    torch.testing.assert_close(attend(plan, logits_of(ROWS)).out, right.out, rtol=0, atol=1e-13)


def test_without_a_maximum_the_exponential_overflows() -> None:
    """exp(12) is beyond fp16, and inf / inf is NaN; subtracted, the row is right."""
    x = logits_of([[12.0, 12.0]])
    assert attend(Plan(max="none", e="fp16"), x).out.isnan().all()
    assert attend(Plan(e="fp16"), x).out.item() == 0.5


@pytest.mark.parametrize("plan", [Plan(), Plan(max="online", block=2), Plan(max="none"), Plan(normalise="before")])
def test_a_row_that_sees_no_key(plan: Plan) -> None:
    mask = torch.tensor([[False] * 4, [True] * 4])
    x = Operands(normal(1, 1, 2, 8), normal(1, 1, 4, 8, seed=1), normal(1, 1, 4, 3, seed=2), mask)
    done = attend(plan, x)
    assert done.out[0, 0, 0].tolist() == [0, 0, 0] and done.lse[0, 0, 0] == -math.inf
    textbook = attend(replace(plan, safe=False), x)
    assert textbook.out[0, 0, 0].isnan().all()
    assert torch.equal(textbook.out[0, 0, 1], done.out[0, 0, 1])


# What an observer sees


def test_an_observer_sees_every_element_of_every_stage_once() -> None:
    """The scores, put together from the pieces at their corners, are q.k; each stage comes before those that use it."""
    q, k, v = normal(2, 4, 70, 8), normal(2, 2, 9000, 8, seed=1), normal(2, 2, 9000, 3, seed=2)
    x = Operands(q, k, v)
    full = torch.zeros(2, 4, 70, 9000, dtype=torch.float64)
    counts: dict[str, int] = {}

    def watch(seen: Seen) -> None:
        counts[seen.stage] = counts.get(seen.stage, 0) + seen.before.numel()
        assert torch.equal(seen.after, seen.rounding.apply(seen.before))
        if seen.stage == "s":
            b, h, i, j = seen.corner
            full[b, h, i : i + seen.before.shape[2], j : j + seen.before.shape[3]] += seen.before[0, 0]

    attend(Plan(k="fp16", s="fp16", max="online", block=3000, alpha="fp32"), x, watch)
    rounded = round_to(k, "fp16").double().repeat_interleave(2, 1)
    torch.testing.assert_close(full, q @ rounded.mT, rtol=0, atol=1e-12)
    pairs, rows = 2 * 4 * 70 * 9000, 2 * 4 * 70
    every = {"q": q.numel(), "k": k.numel(), "v": v.numel()}
    every |= dict.fromkeys(("s_acc", "s", "scaled", "shifted", "e", "p"), pairs)
    every |= dict.fromkeys(("m", "alpha", "l"), 3 * rows)
    every |= dict.fromkeys(("pv_acc", "pv"), 3 * 3 * rows) | {"out": 3 * rows, "lse": rows}
    assert counts == every
    assert list(counts)[:3] == ["q", "k", "v"] and list(counts)[-1] == "out"


def test_stochastic_rounding_repeats_with_its_seed() -> None:
    x = Operands(normal(1, 1, 20, 8), normal(1, 1, 30, 8, seed=1), normal(1, 1, 30, 8, seed=2))
    plan = Plan(p="bf16:stochastic")
    assert torch.equal(attend(plan, x).out, attend(plan, x).out)
    assert not torch.equal(attend(plan, x).out, attend(replace(plan, seed=1), x).out)


def test_each_stage_has_random_numbers_of_its_own() -> None:
    """Rounding another stage stochastically, which here changes nothing, leaves the draws of this one."""
    x = Operands(normal(1, 1, 20, 8), normal(1, 1, 30, 8, seed=1), round_to(normal(1, 1, 30, 8, seed=2), "bf16"))
    alone, beside = (Plan(p="bf16:stochastic", v=v) for v in ("fp64", "bf16:stochastic"))
    assert torch.equal(attend(alone, x).out, attend(beside, x).out)


def test_a_head_of_the_published_tables_takes_less_than_three_seconds() -> None:
    """1024 queries, 8192 keys and a width of 128, in seconds of one core, which a busy machine does not change."""
    x = Operands(normal(1, 1, 1024, 128), normal(1, 1, 8192, 128, seed=1), normal(1, 1, 8192, 128, seed=2))
    with one_thread(torch.device("cpu")):
        begin = time.process_time()
        attend(PLANS["flash"].resolve("fp16"), x)
        assert time.process_time() - begin < 3.0

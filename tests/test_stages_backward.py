"""The backward pass of a plan: the gradients of attention, and each stage rounded by itself."""

import numpy as np
import pytest
import torch
from draws import normal
from hypothesis import given
from hypothesis import strategies as st
from plain import any_operands
from torch import Tensor

from precision.numerics.reference import attend as reference
from precision.operands import Operands
from precision.stages.backward import attend_backward
from precision.stages.forward import attend
from precision.stages.plan import BACKWARD_STAGES, Plan
from precision.stages.rounder import Seen

NAMES = ("dq", "dk", "dv")
ORDERS = [
    Plan(),
    Plan(scale="before", max="online", block=3),
    Plan(scale="both", normalise="before"),
    Plan(grad_exp="exp2", max="none", grad_chunk=2),
    Plan(max="stale", block=2, stale=1.0, grad_chunk=1, dq_chunk=3),
]


@given(x=any_operands(), plan=st.sampled_from(ORDERS))
def test_exact_stages_give_the_gradients_in_any_order(x: Operands, plan: Plan) -> None:
    right = reference(x)
    do = normal(*right.out.shape)
    found, wanted = attend_backward(attend(plan, x), do), right.backward(do)
    for name in NAMES:
        torch.testing.assert_close(getattr(found, name), getattr(wanted, name), rtol=0, atol=1e-12)


def test_a_rotation_is_undone_in_the_gradients() -> None:
    x = Operands(normal(1, 2, 9, 16, seed=1), normal(1, 2, 8, 16, seed=2), normal(1, 2, 8, 4, seed=3))
    do = normal(1, 2, 9, 4, seed=4)
    found, wanted = attend_backward(attend(Plan(rotate=True), x), do), reference(x).backward(do)
    for name in NAMES:
        torch.testing.assert_close(getattr(found, name), getattr(wanted, name), rtol=0, atol=1e-12)


# Against the same stages in numpy

X = Operands(normal(1, 4, 9, 16, seed=1), normal(1, 2, 14, 16, seed=2), normal(1, 2, 14, 5, seed=3), scale=0.3)
DO = normal(1, 4, 9, 5, seed=4)


def half(values: np.ndarray) -> np.ndarray:
    return values.astype(np.float16).astype(np.float64)


def in_numpy(rounded: str) -> dict[str, np.ndarray]:
    """FlashAttention's backward pass in numpy, where the stage of that name is rounded to fp16."""

    def stage(name: str, values: np.ndarray) -> np.ndarray:
        return half(values) if name == rounded else values

    q, k, v, do = (t.numpy() for t in (X.q, X.k.repeat_interleave(2, 1), X.v.repeat_interleave(2, 1), DO))
    s = q @ k.swapaxes(-1, -2) * 0.3
    lse = np.log(np.exp(s).sum(-1, keepdims=True))
    out = np.exp(s - lse) @ v
    lse, do = stage("lse", lse), stage("do", do)
    p = np.exp(s - lse)
    dp = stage("dp", do @ v.swapaxes(-1, -2))
    ds = stage("ds", p * (dp - stage("d", (do * out).sum(-1, keepdims=True))))
    dk = (ds.swapaxes(-1, -2) @ q).reshape(1, 2, 2, 14, 16).sum(2)
    dv = (stage("p_grad", p).swapaxes(-1, -2) @ do).reshape(1, 2, 2, 14, 5).sum(2)
    return {"dq": stage("dq", 0.3 * (ds @ k)), "dk": stage("dk", 0.3 * dk), "dv": stage("dv", dv)}


# What each stage changes; all else keeps its bits.
CHANGES = {
    "lse": "dq dk dv", "do": "dq dk dv", "p_grad": "dv", "dp": "dq dk", "d": "dq dk", "ds": "dq dk",
    "dq": "dq", "dk": "dk", "dv": "dv",
}  # fmt: skip


@pytest.mark.parametrize("stage", CHANGES)
def test_each_stage_is_rounded_by_itself(stage: str) -> None:
    plan = Plan().rounded("fp16", stage)
    found, exact = (attend_backward(attend(p, X), DO) for p in (plan, Plan()))
    for name, expected in in_numpy(stage).items():
        np.testing.assert_allclose(getattr(found, name).numpy(), expected, rtol=1e-12, atol=1e-13)
        assert torch.equal(getattr(found, name), getattr(exact, name)) == (name not in CHANGES[stage].split())


def test_the_exponential_of_the_backward_pass_is_its_own() -> None:
    """dv = P^T dO with P by the polynomial, whose relative error is 8.6e-5; out has the exact one."""
    exact, polynomial = attend(Plan(), X), attend(Plan(grad_exp="poly"), X)
    assert torch.equal(exact.out, polynomial.out)
    p = torch.softmax(X.q @ X.k.repeat_interleave(2, 1).mT * 0.3, -1)
    allowed = 8.7e-5 * (p.mT @ DO.abs()).reshape(1, 2, 2, 14, 5).sum(2)
    error = (attend_backward(polynomial, DO).dv - attend_backward(exact, DO).dv).abs()
    assert bool((error <= allowed).all()) and bool((error > 0.1 * allowed).any())


def test_every_stage_has_been_rounded() -> None:
    assert set(CHANGES) | {"grad_acc"} == {*BACKWARD_STAGES, "lse"}


def ones(*shape: int) -> Tensor:
    return torch.ones(1, 1, *shape, dtype=torch.float64)


@pytest.mark.parametrize(("chunk", "total"), [(0, 1000.0), (1, 256.0), (2, 512.0), (4, 1000.0)])
def test_sums_over_the_queries_stagnate_where_their_accumulator_is_narrow(chunk: int, total: float) -> None:
    """One key has the weight 1: dv is the sum of 1000 ones; in bf16, whose significand has 8 bits, 256 + 1 = 256."""
    x = Operands(ones(1000, 4), ones(1, 4), ones(1, 1))
    plan = Plan(grad_acc="bf16", grad_chunk=chunk)
    assert attend_backward(attend(plan, x), ones(1000, 1)).dv.item() == total


@pytest.mark.parametrize(("chunk", "total"), [(0, 1024.0), (1, 256.0), (2, 512.0), (4, 1024.0)])
def test_sums_over_the_keys_stagnate_where_their_accumulator_is_narrow(chunk: int, total: float) -> None:
    """2048 equal weights; v is 1 for the first half and -1 for the other, so D = 0 and dS = +-1/2048; k is 1 and 0."""
    half_of_them = torch.arange(2048)[None, None, :, None] < 1024
    k, v = half_of_them.double(), 2 * half_of_them.double() - 1
    plan = Plan(grad_acc="bf16", dq_chunk=chunk)
    assert attend_backward(attend(plan, Operands(0 * ones(1, 1), k, v, scale=2048.0)), ones(1, 1)).dq.item() == total


def test_chunks_of_queries_do_not_depend_on_the_blocks_of_rows() -> None:
    """4000 keys make blocks of 131 rows, which are no multiple of 3."""
    x = Operands(normal(1, 1, 300, 4), normal(1, 1, 4000, 4, seed=1), normal(1, 1, 4000, 2, seed=2))
    do = normal(1, 1, 300, 2, seed=3)
    plan = Plan(grad_acc="bf16", grad_chunk=3, dq="fp32")
    found = attend_backward(attend(plan, x), do).dv
    p = (x.q @ x.k.mT / 2).softmax(-1)[0, 0]
    total = torch.zeros(4000, 2, dtype=torch.float64)
    for start in range(0, 300, 3):
        total = (total + p[start : start + 3].T @ do[0, 0, start : start + 3]).float().bfloat16().double()
    assert (found[0, 0] == total).double().mean() > 0.999  # the step to float32 rounds a few ties otherwise


def test_the_stages_are_shown() -> None:
    counts: dict[str, int] = {}

    def watch(seen: Seen) -> None:
        counts[seen.stage] = counts.get(seen.stage, 0) + seen.before.numel()

    attend_backward(attend(Plan(), X), DO, watch)
    pairs = 4 * 9 * 14
    assert {name: counts[name] for name in ("p_grad", "dp", "ds")} == dict.fromkeys(("p_grad", "dp", "ds"), pairs)
    assert {name: counts[name] for name in ("do", "d", "dq", "dk", "dv")} == {
        "do": DO.numel(), "d": 4 * 9, "dq": X.q.numel(), "dk": X.k.numel(), "dv": X.v.numel(),
    }  # fmt: skip

"""Textbook attention: right in fp64, and rounded after every stage in its own dtype."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from plain import any_operands, plain_attention
from torch import Tensor

from precision.backends.eager import Eager
from precision.operands import Operands

METHODS = [Eager(shift, scale) for shift in (True, False) for scale in ("after", "before")]
EVERY = pytest.mark.parametrize("method", METHODS, ids=str)


def run(method: Eager, x: Operands) -> Tensor:
    with method.prepare(x) as call:
        return call()


@EVERY
@given(x=any_operands(dtypes=("fp64",)))
def test_fp64_is_right_or_a_masked_row(method: Eager, x: Operands) -> None:
    out, plain = run(method, x), plain_attention(x)
    seen = plain.seen.any(-1)
    assert out[~seen].isnan().all()  # a softmax over nothing is 0/0
    assert out.shape == plain.out.shape
    torch.testing.assert_close(out[seen], plain.out[seen], rtol=0, atol=1e-12)


def whole(*shape: int, seed: int, top: int) -> Tensor:
    """Multiples of 1/4 whose products and sums are exact in fp32, so that the order of a sum cannot matter."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-top, top + 1, shape, generator=generator).half() / 4


STAGES = Operands(
    whole(2, 4, 9, 16, seed=0, top=4), whole(2, 2, 7, 16, seed=1, top=4), whole(2, 2, 7, 5, seed=2, top=4)
)


def in_stages(method: Eager, x: Operands) -> np.ndarray:
    """The same stages in numpy, exact but for one rounding to fp16 after each."""

    def stage(values: np.ndarray) -> np.ndarray:
        return values.astype(np.float16).astype(np.float64)

    q, k, v = (t.double().numpy() for t in (x.q, x.k.repeat_interleave(2, 1), x.v.repeat_interleave(2, 1)))
    if method.scale == "before":
        scores = stage(stage(q * x.scale_value) @ k.swapaxes(-1, -2))
    else:
        scores = stage(stage(q @ k.swapaxes(-1, -2)) * x.scale_value)
    if x.attn_mask is not None:
        scores = stage(scores + x.attn_mask.double().numpy())
    if method.max_subtraction:
        scores = stage(scores - scores.max(-1, keepdims=True))
    weights = stage(np.exp(scores))
    return stage(stage(weights / stage(weights.sum(-1, keepdims=True))) @ v)


@EVERY
@pytest.mark.parametrize("scale", [None, 0.3])
@pytest.mark.parametrize("masked", [False, True])
def test_rounds_after_every_stage_and_nowhere_else(method: Eager, scale: float | None, masked: bool) -> None:
    x = replace(STAGES, scale=scale, attn_mask=whole(9, 7, seed=3, top=3) if masked else None)
    out = run(method, x)
    assert out.dtype == torch.float16
    np.testing.assert_array_equal(out.numpy().astype(np.float64), in_stages(method, x))


def test_the_options_change_the_roundings() -> None:
    outs = [run(method, replace(STAGES, scale=0.3)) for method in METHODS]
    assert not any(torch.equal(a, b) for i, a in enumerate(outs) for b in outs[:i])


def column(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float16).reshape(1, 1, -1, 1)


@pytest.mark.parametrize("max_subtraction", [True, False])
def test_max_subtraction_keeps_the_exponential_finite(max_subtraction: bool) -> None:
    """exp(12) is beyond fp16; exp(0) is not."""
    x = Operands(column(1), column(12, 12), column(1, 3), scale=1.0)
    out = run(Eager(max_subtraction=max_subtraction), x).item()
    assert out == 2.0 if max_subtraction else math.isnan(out)


@pytest.mark.parametrize("scale", ["after", "before"])
def test_scaling_first_keeps_the_scores_finite(scale: str) -> None:
    """400 x 200 is beyond fp16 until it is multiplied by 1/2."""
    x = Operands(column(400), column(200, 200), column(1, 3), scale=0.5)
    out = run(Eager(scale=scale), x).item()
    assert math.isnan(out) if scale == "after" else out == 2.0


def test_max_subtraction_is_what_it_tells_the_suite() -> None:
    assert Eager().max_subtraction and not Eager(max_subtraction=False).max_subtraction

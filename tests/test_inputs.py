"""Distributions by their moments, and how a problem becomes operands.

Tolerances of moments are five standard errors of the estimate for the number of elements drawn.
"""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from precision.errors import UsageError
from precision.inputs import capture_file
from precision.inputs.distribution import Drawn, distributions
from precision.inputs.make import Inputs, make_inputs
from precision.operands import Operands
from precision.problem import Problem, Shape
from precision.scores.mask import masks

CPU = torch.device("cpu")
SHAPE = Shape(2, 6, 2, 48, 64, 32, 16)
NAMED = sorted(set(distributions.names()) - {"captured"})


def drawn(spec: str, shape: Shape = SHAPE, seed: int = 0) -> Drawn:
    return distributions.build(spec).draw(shape, torch.Generator().manual_seed(seed))


def assert_moments(x: Tensor, mean: float, std: float, kurtosis: float = 3.0) -> None:
    """The sample variance of n values has standard error sigma^2 sqrt((kurtosis - 1)/n)."""
    count = x.numel()
    assert float(x.mean()) == pytest.approx(mean, abs=5 * std / math.sqrt(count))
    assert float(x.var()) == pytest.approx(std**2, rel=5 * math.sqrt((kurtosis - 1) / count))


# Every distribution


@pytest.mark.parametrize("name", NAMED)
@pytest.mark.parametrize(
    "shape", [SHAPE, Shape(1, 1, 1, 1, 1, 1, 1), Shape(1, 4, 2, 0, 3, 5, 7), Shape(0, 1, 1, 2, 0, 3, 4)]
)
def test_draws_the_shape_in_float64(name: str, shape: Shape) -> None:
    q, k, v = drawn(name, shape)
    assert q.shape == (shape.batch, shape.q_heads, shape.q_len, shape.d_k)
    assert k.shape == (shape.batch, shape.kv_heads, shape.kv_len, shape.d_k)
    assert v.shape == (shape.batch, shape.kv_heads, shape.kv_len, shape.d_v)
    assert q.dtype == k.dtype == v.dtype == torch.float64
    assert all(x.isfinite().all() for x in (q, k, v))


@pytest.mark.parametrize("name", NAMED)
def test_the_seed_decides(name: str) -> None:
    first, again, other = drawn(name, seed=3), drawn(name, seed=3), drawn(name, seed=4)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(first, other, strict=True))


@pytest.mark.parametrize("name", NAMED)
def test_q_k_and_v_are_different_draws(name: str) -> None:
    q, k, v = drawn(name, Shape(1, 1, 1, 8, 8, 8, 8))
    assert not torch.equal(q, k) and not torch.equal(k, v) and not torch.equal(q, v)


# Each by its law


def test_normal() -> None:
    q, k, v = drawn("normal")
    for x in (q, k, v):
        assert_moments(x, 0.0, 1.0)
        assert float((x.abs() > 1.959964).double().mean()) == pytest.approx(0.05, abs=5 * math.sqrt(0.0475 / x.numel()))


@pytest.mark.parametrize("std", [4.0, 0.25])
def test_large(std: float) -> None:
    q, k, v = drawn(f"large[std={std}]")
    assert_moments(q, 0.0, std)
    assert_moments(k, 0.0, std)
    assert_moments(v, 0.0, 1.0)
    plain = drawn("normal")
    assert torch.equal(q, std * plain.q) and torch.equal(v, plain.v)


@pytest.mark.parametrize(("std", "share"), [(10.0, 0.001), (100.0, 0.05), (1.0, 1.0)])
def test_outlier(std: float, share: float) -> None:
    """|x| > 6 shows an outlier; it is seen with probability share P(|N(0, 1 + std^2)| > 6)."""
    seen = math.erfc(6 / math.sqrt(1 + std**2) / math.sqrt(2)) * share
    for x in drawn(f"outlier[std={std},share={share}]", Shape(1, 4, 4, 256, 256, 128, 128)):
        assert float((x.abs() > 6).double().mean()) == pytest.approx(seen, abs=5 * math.sqrt(seen / x.numel()))
        variance = 1 + share * std**2
        fourth = 3 * ((1 - share) + share * (1 + std**2) ** 2)
        assert_moments(x, 0.0, math.sqrt(variance), kurtosis=fourth / variance**2)


def test_outlier_without_a_share_is_normal() -> None:
    assert torch.equal(drawn("outlier[share=0]").q, drawn("normal").q)


@pytest.mark.parametrize("rho", [0.9, 0.3, -0.5, 1.0])
def test_aligned(rho: float) -> None:
    """q_j.k_j has mean rho d and variance (1 + rho^2) d; the other scores have mean 0 and variance d."""
    d, n = 64, 512
    q, k, v = drawn(f"aligned[rho={rho}]", Shape(1, 4, 4, n, n, d, 8))
    raw = q @ k.mT
    own = raw.diagonal(dim1=-2, dim2=-1)
    assert float(own.mean()) == pytest.approx(rho * d, abs=5 * math.sqrt((1 + rho**2) * d / own.numel()))
    assert float(own.var()) == pytest.approx((1 + rho**2) * d, rel=5 * math.sqrt(3 / own.numel()))
    assert_moments(k, 0.0, 1.0)
    assert_moments(v, 0.0, 1.0)
    others = raw[..., 0, 1:]  # of one query: N(0, |q|^2) given the query
    length = float(q[0, 0, 0].norm())
    assert_moments(others[0, 0], 0.0, length)


def test_aligned_pairs_keys_with_queries_in_turn() -> None:
    """rho 1 leaves no noise: key j is query j modulo q_len, of the first query head of its group."""
    q, k, _ = drawn("aligned[rho=1]", Shape(2, 6, 2, 3, 7, 4, 4))
    for j in range(7):
        assert torch.equal(k[:, 0, j], q[:, 0, j % 3])
        assert torch.equal(k[:, 1, j], q[:, 3, j % 3])


@pytest.mark.parametrize(("mean", "amplitude"), [(30.0, 0.5), (0.0, 20.0), (-10.0, 5.0)])
def test_offset(mean: float, amplitude: float) -> None:
    for x in drawn(f"offset[mean={mean},amplitude={amplitude}]"):
        assert_moments(x, mean, amplitude / math.sqrt(3), kurtosis=1.8)
        assert float((x - mean).abs().max()) <= amplitude
        assert float((x - mean).abs().max()) > 0.99 * amplitude


@pytest.mark.parametrize(
    "spec",
    [
        "large[std=0]",
        "large[std=inf]",
        "outlier[share=2]",
        "outlier[std=-1]",
        "aligned[rho=1.5]",
        "offset[amplitude=-1]",
    ],
)
def test_options_out_of_range(spec: str) -> None:
    with pytest.raises(UsageError, match="option"):
        drawn(spec)


# From a problem to its operands


def made(dtype: str = "fp16", **changes: object) -> Inputs:
    return make_inputs(replace(Problem(SHAPE, dtype), **changes), CPU)


def tensors(x: Operands) -> tuple[Tensor, Tensor, Tensor]:
    return x.q, x.k, x.v


@pytest.mark.parametrize("mask", ["causal", "bool", "additive"])
def test_the_mask_changes_no_input(mask: str) -> None:
    for a, b in zip(tensors(made().exact), tensors(made(mask=mask).exact), strict=True):
        assert torch.equal(a, b)


def test_the_mask_has_a_stream_of_its_own() -> None:
    """From the generator of q it would be a function of q."""
    same_stream = masks.build("bool").draw(SHAPE, torch.Generator().manual_seed(0))
    assert not torch.equal(made(mask="bool", seed=0).exact.attn_mask, same_stream)


@pytest.mark.parametrize("dtype", ["bf16", "fp32", "fp64"])
def test_the_dtype_changes_only_the_rounding(dtype: str) -> None:
    for a, b in zip(tensors(made().exact), tensors(made(dtype).exact), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize(
    ("dtype", "kind", "u"),
    [("fp16", torch.float16, 2**-11), ("bf16", torch.bfloat16, 2**-8), ("fp32", torch.float32, 2**-24)],
)
def test_rounded_to_the_dtype(dtype: str, kind: torch.dtype, u: float) -> None:
    inputs = made(dtype, mask="additive[slope=0.3]")
    pairs = list(zip(tensors(inputs.exact), tensors(inputs.rounded), strict=True))
    pairs.append((inputs.exact.attn_mask, inputs.rounded.attn_mask))
    for exact, rounded in pairs:
        assert exact.dtype == torch.float64 and rounded.dtype == kind
        error = (rounded.double() - exact).abs()
        assert (error <= u * exact.abs() + 2**-25).all()
        assert error.max() > 0


def test_rounds_once() -> None:
    """A draw that lies just above a tie of fp16 must go up, though float32 would put it on the tie."""

    class Tie:
        def draw(self, shape: Shape, generator: torch.Generator) -> Drawn:
            x = torch.full((1, 1, 1, 1), 1 + 2.0**-11 + 2.0**-40, dtype=torch.float64)
            return Drawn(x, x, x)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(distributions, "build", lambda spec: Tie())
        inputs = make_inputs(Problem(Shape(1, 1, 1, 1, 1, 1, 1), "fp16"), CPU)
    assert inputs.rounded.q.item() == inputs.rounded.v.item() == 1 + 2.0**-10


def test_fp64_is_exact() -> None:
    inputs = made("fp64")
    assert all(torch.equal(a, b) for a, b in zip(tensors(inputs.exact), tensors(inputs.rounded), strict=True))


def test_switches_come_from_the_problem() -> None:
    causal = made(mask="causal", scale=0.25)
    for x in (causal.exact, causal.rounded):
        assert x.is_causal and x.attn_mask is None and x.scale == 0.25
    masked = made(mask="bool").rounded
    assert masked.attn_mask is not None and masked.attn_mask.dtype == torch.bool and not masked.is_causal
    assert masked.scale == 1 / math.sqrt(32)


def test_the_seed_of_a_problem_decides_inputs_and_mask() -> None:
    a, b = made(mask="bool", seed=1).exact, made(mask="bool", seed=2).exact
    assert not torch.equal(a.q, b.q)
    assert not torch.equal(a.attn_mask, b.attn_mask)


# Captured


@pytest.mark.parametrize("call", [0, 3])
def test_captured_inputs_are_those_of_the_file(call: int) -> None:
    stored = capture_file.load_call(capture_file.resolve("minilm"), call)
    batch, heads, length, width = stored.q.shape
    shape = Shape(batch, heads, heads, length, length, width, width)
    inputs = make_inputs(Problem(shape, "fp16", f"captured[call={call}]", mask="captured"), CPU)
    for exact, rounded, tensor in zip(
        tensors(inputs.exact), tensors(inputs.rounded), (stored.q, stored.k, stored.v), strict=True
    ):
        assert exact.dtype == torch.float64
        assert torch.equal(exact, tensor.double())
        assert torch.equal(rounded, tensor.to(torch.float16))  # stored as float32 or narrower: rounded once
    assert inputs.exact.is_causal == stored.is_causal
    if stored.attn_mask is None:
        assert inputs.exact.attn_mask is None
    else:
        assert torch.equal(inputs.exact.attn_mask, stored.attn_mask.to(inputs.exact.attn_mask.dtype))


@pytest.mark.parametrize("additive", [False, True])
def test_captured_mask(additive: bool, tmp_path: Path) -> None:
    mask = torch.rand(1, 1, 3, 4, generator=torch.Generator().manual_seed(0)) > 0.5
    if additive:
        mask = torch.zeros(1, 1, 3, 4).masked_fill(~mask, torch.finfo(torch.float32).min)
    call = capture_file.CallTensors(
        "here", torch.ones(1, 2, 3, 5), torch.ones(1, 2, 4, 5), torch.ones(1, 2, 4, 6), mask
    )
    path = tmp_path / "one.safetensors"
    capture_file.write(path, [call], model="m", source="s")
    problem = Problem(Shape(1, 2, 2, 3, 4, 5, 6), "fp32", f"captured[call=0,file={path}]", mask="captured")
    inputs = make_inputs(problem, CPU)
    assert torch.equal(inputs.rounded.attn_mask, mask)
    assert inputs.exact.attn_mask.dtype == (torch.float64 if additive else torch.bool)
    assert make_inputs(replace(problem, mask="causal"), CPU).exact.attn_mask is None  # another mask may be asked for

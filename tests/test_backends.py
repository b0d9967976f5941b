"""Every registered backend computes the same function, or says why not; a new one is tested by being there."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from backend_calls import (
    COMPILED,
    FP32_INSIDE,
    HERE,
    PROBLEMS,
    ROUNDOFF,
    SOFTMAX,
    TRACED,
    assert_right,
    bound,
    operands,
    prepared,
)

from precision.backends.backend import Absent, backends
from precision.operands import Operands


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("method", [*SOFTMAX, TRACED])
def test_fp64_shows_the_right_function(method: str, problem: str) -> None:
    x = PROBLEMS[problem](torch.float64)
    if method == "onnxruntime" and x.scale_value < 0:
        pytest.skip("it takes the square root of the scale")
    inside = torch.float32 if method in FP32_INSIDE else torch.float64
    assert_right(method, x, bound(x, ROUNDOFF[inside]) if inside == torch.float32 else 1e-12)


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("method", SOFTMAX)
def test_fp32_errs_within_its_bound(method: str, problem: str) -> None:
    x = PROBLEMS[problem](torch.float32)
    assert_right(method, x, bound(x, ROUNDOFF[torch.float32]))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("problem", ["plain", "grouped heads", "causal wide", "additive mask"])
@pytest.mark.parametrize("method", SOFTMAX)
def test_narrow_formats_err_within_their_bound(method: str, problem: str, dtype: torch.dtype) -> None:
    x = PROBLEMS[problem](dtype)
    assert_right(method, x, bound(x, ROUNDOFF[dtype]))


@pytest.mark.parametrize("method", HERE)
def test_each_call_computes_into_memory_of_its_own(method: str) -> None:
    x = operands(torch.float32)
    with prepared(method, x) as call:
        first = call()
        copy = first.clone()
        second = call()
    assert torch.equal(first, copy) and torch.equal(first, second)
    assert first.data_ptr() != second.data_ptr()


@pytest.mark.parametrize("method", HERE)
def test_the_operands_stay_as_they_are(method: str) -> None:
    x = PROBLEMS["additive mask"](torch.float32)
    before = [tensor.clone() for tensor in (x.q, x.k, x.v, x.attn_mask)]
    with prepared(method, x) as call:
        call()
    assert all(torch.equal(a, b) for a, b in zip((x.q, x.k, x.v, x.attn_mask), before, strict=True))


@pytest.mark.parametrize("method", [name for name in HERE if "max_subtraction=false" in name])
def test_without_max_subtraction_a_large_logit_overflows(method: str) -> None:
    q = torch.full((1, 1, 1, 8), 10.0)
    x = Operands(q, torch.full((1, 1, 2, 8), 12.5), torch.ones(1, 1, 2, 8), scale=1.0)  # logits of 1000
    backend = backends.build(method)
    assert not backend.max_subtraction
    with prepared(method, x) as call:
        assert not call().isfinite().any()


@pytest.mark.parametrize("method", [name for name in backends.names() if name not in [*COMPILED, *HERE]])
def test_what_is_not_here_says_why(method: str) -> None:
    with pytest.raises(Absent, match=r"is not installed; pip install|cannot be imported|kernel here for|GPU|CUDA"):
        backends.build(method).prepare(operands(torch.float16)).__enter__()


def test_importing_every_backend_and_asking_torch_imports_no_framework() -> None:
    heavy = ["torch._dynamo", "torch._inductor", "jax", "onnx", "onnxruntime", "triton", "xformers", "flash_attn"]
    code = (
        "import sys, torch\nfrom precision.backends.backend import backends\nassert len(backends.names()) > 10\n"
        "from precision.operands import Operands\nx = torch.ones(1, 1, 2, 8)\n"
        "with backends.build('sdpa-flash').prepare(Operands(x, x, x)) as call:\n    assert call().shape == x.shape\n"
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

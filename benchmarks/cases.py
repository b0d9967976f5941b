"""What is benchmarked: methods, number formats, scales and problems. Importing this module does no tensor work."""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import replace
from functools import lru_cache

import torch
import torch._dynamo  # the first call on meta tensors imports it, 3 s in every forked benchmark otherwise
from torch import Tensor

from precision.backends.backend import Absent, Attention, Refused, backends
from precision.inputs import capture_file
from precision.inputs.make import make_inputs
from precision.operands import Operands
from precision.problem import Problem, Shape

# Named one by one, so that a series keeps its name for as long as the history is read.
METHODS = ["eager", "eager[max_subtraction=false]", "sdpa-math", "sdpa-flash"]
DTYPES = ["fp32", "fp16", "bf16"]
SCALES = ["sqrt_dk", "none"]

# By name: shape, inputs and mask. Odd lengths, where tilings go wrong.
_DRAWN = {
    "normal": (Shape(1, 2, 2, 257, 257, 64, 64), "normal", "none"),
    "outlier": (Shape(1, 2, 2, 113, 203, 128, 128), "outlier", "none"),
    "causal-gqa": (Shape(1, 6, 2, 113, 203, 64, 64), "normal", "causal"),
}
# Real tensors: what the first and the last layer of all-MiniLM-L6-v2 hand to attention.
_CAPTURED = {"minilm-0": 0, "minilm-5": 5}
PROBLEMS = [*_DRAWN, *_CAPTURED]

# A GPU is used when asked for: BENCHMARK_DEVICE=cuda, with `"launch_method": "spawn"` in asv.conf.json.
DEVICE = torch.device(os.environ.get("BENCHMARK_DEVICE", "cpu"))
ONE_THREAD = DEVICE.type == "cpu" and os.environ.get("OMP_NUM_THREADS") == "1"


def make_problem(name: str, dtype: str, scale: str = "sqrt_dk") -> Problem:
    """The problem of that name."""
    if name in _CAPTURED:
        call = _CAPTURED[name]
        header = capture_file.read_header(capture_file.resolve("minilm"))
        return Problem(
            header.calls[call].shape, dtype, f"captured[call={call}]", "captured", scale, digest=header.digest
        )
    shape, inputs, mask = _DRAWN[name]
    return Problem(shape, dtype, inputs, mask, scale)


@lru_cache(maxsize=1)
def make_operands(name: str, dtype: str, scale: str = "sqrt_dk") -> Operands:
    """The rounded operands of a problem; kept, because asv sets up again before every sample."""
    return make_inputs(make_problem(name, dtype, scale), DEVICE).rounded


def require_gradients(x: Operands) -> Operands:
    """The same call with q, k and v as leaves that autograd follows."""
    q, k, v = (tensor.detach().requires_grad_() for tensor in (x.q, x.k, x.v))
    return replace(x, q=q, k=k, v=v)


def draw_do(out: Tensor) -> Tensor:
    """The gradient that reaches the output: normal numbers in its shape and dtype."""
    return torch.randn(out.shape, generator=torch.Generator().manual_seed(0)).to(out)


def prepare(stack: ExitStack, method: str, x: Operands) -> Attention:
    """The function that computes attention of x, for as long as the stack is open.

    Raises NotImplementedError, by which asv knows a combination to skip, when the method is absent or refuses.
    """
    try:
        return stack.enter_context(backends.build(method).prepare(x))
    except (Absent, Refused) as reason:
        raise NotImplementedError(str(reason)) from None


def synchronize() -> None:
    """Wait for the device."""
    if DEVICE.type == "cuda":
        torch.cuda.synchronize(DEVICE)

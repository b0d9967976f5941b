"""Latency of the backward pass, with the errors of the gradients beside it and asserted."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from benchmarks import cases, naive
from precision.formats import find_format
from precision.numerics.metrics import measure_errors
from precision.numerics.reference import attend


def measure_rel_l2(gradients: tuple[Tensor, ...], right: Any, dtype: str) -> dict[str, float]:
    """Relative errors of dq, dk and dv in the 2-norm."""
    errors = {}
    for name, gradient in zip(("dq", "dk", "dv"), gradients, strict=True):
        assert gradient.isfinite().all()
        found = measure_errors(gradient, getattr(right, name), find_format(dtype))
        assert found is not None
        errors[name] = found.rel_l2
    return errors


@pytest.mark.parametrize("problem", ["normal", "minilm-5"])
@pytest.mark.parametrize("dtype", cases.DTYPES)
@pytest.mark.parametrize("method", ["eager", "sdpa-math", "sdpa-flash"])
def test_backward(benchmark: Any, method: str, dtype: str, problem: str) -> None:
    benchmark.group = f"backward {problem} {dtype}"
    x = cases.require_gradients(cases.make_operands(problem, dtype))
    with ExitStack() as stack:
        out = cases.prepare(stack, method, x)()
        do = cases.draw_do(out)
        differentiate = partial(torch.autograd.grad, inputs=(x.q, x.k, x.v), grad_outputs=do, retain_graph=True)
        gradients = benchmark.pedantic(differentiate, (out,), rounds=30, warmup_rounds=3)
    forward = attend(x)
    right = forward.backward(do)
    errors = measure_rel_l2(gradients, right, dtype)
    yardstick = measure_rel_l2(differentiate(naive.attend_naively(x)), right, dtype)
    benchmark.extra_info |= {f"{name}_rel_l2": error for name, error in errors.items()}
    # Twice the error of the plain code in the same dtype, as forward. A fused kernel recomputes its weights from
    # lse, which it kept in fp32: that changes each of them by up to u |lse| more.
    recomputed = find_format("fp32").unit_roundoff * float(forward.lse.abs().max())
    assert all(errors[name] <= 2 * yardstick[name] + recomputed for name in errors)

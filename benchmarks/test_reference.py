"""What the fp64 reference costs beside other fp64 attention, in time and in memory; one process, one thread."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest
from torch import Tensor

from benchmarks import cases, naive
from precision.inputs.make import make_inputs
from precision.numerics.reference import attend
from precision.operands import Operands
from precision.problem import Problem, Shape
from precision.sweep.memory import measure_peak_memory


def make_square(heads: int, length: int) -> Operands:
    """Normal operands in fp64, (1, heads, length, 64)."""
    shape = Shape(1, heads, heads, length, length, 64, 64)
    return make_inputs(Problem(shape, "fp64"), cases.DEVICE).exact


def call_streaming(stack: ExitStack, x: Operands) -> Callable[[], Tensor]:
    """Our reference."""
    return lambda: attend(x).out


def call_naive(stack: ExitStack, x: Operands) -> Callable[[], Tensor]:
    """Three lines of torch, with all scores in memory."""
    return lambda: naive.attend_naively(x)


def call_flash(stack: ExitStack, x: Operands) -> Callable[[], Tensor]:
    """torch's fused kernel in fp64."""
    return cases.prepare(stack, "sdpa-flash", x)


@pytest.mark.benchmark(group="reference, fp64 (1, 8, 2048, 64)")
@pytest.mark.parametrize("implementation", [call_streaming, call_naive, call_flash])
def test_reference_latency(benchmark: Any, implementation: Callable[[ExitStack, Operands], Any]) -> None:
    x = make_square(heads=8, length=2048 if benchmark.enabled else 256)
    with ExitStack() as stack:
        out = benchmark.pedantic(implementation(stack, x), rounds=5, warmup_rounds=1)
    # fp64 rounds 2^29 times finer than fp32; 1e-12 is far above its error here and far below any fp32 step.
    assert float((out - naive.attend_naively(x)).abs().max()) < 1e-12


def test_reference_memory(benchmark: Any) -> None:
    length = 32768 if benchmark.enabled else 4096
    x = make_square(heads=1, length=length)
    peak = benchmark.pedantic(measure_peak_memory, (lambda: attend(x).out, cases.DEVICE), rounds=1)
    benchmark.extra_info["peak_memory"] = peak
    # All scores in fp64 would take 8 bytes a pair; a streaming reference stays far below.
    assert peak < 8 * length**2 / 4

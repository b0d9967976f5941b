"""Latency of one call, forward and backward. The timing and its statistics are asv's."""

from __future__ import annotations

import time
from contextlib import ExitStack

import torch

from benchmarks import cases


class _Latency:
    params = (cases.METHODS, cases.DTYPES, ["normal", "causal-gqa", "minilm-0"])
    param_names = ("method", "dtype", "problem")
    version = "1"
    # One thread that never waits: its processor time is its latency on an idle machine, and unlike the wall clock
    # it does not count what others do in between.
    timer = time.process_time if cases.ONE_THREAD else time.perf_counter
    number = 1
    repeat = (10, 200, 1.0)  # long beside the bursts of work that others do
    rounds = 2
    warmup_time = 0.1

    def setup(self, method: str, dtype: str, problem: str) -> None:
        self.stack = ExitStack()
        self.open(method, cases.make_operands(problem, dtype))

    def teardown(self, method: str, dtype: str, problem: str) -> None:
        self.stack.close()


class Forward(_Latency):
    """Operands to output."""

    def open(self, method: str, x: cases.Operands) -> None:
        self.call = cases.prepare(self.stack, method, x)
        self.call()  # `asv run --quick` times one call and warms nothing up

    def time_forward(self, method: str, dtype: str, problem: str) -> None:
        self.call()
        cases.synchronize()


class Backward(_Latency):
    """The output's gradient to dq, dk and dv, by autograd; the forward pass is not timed."""

    def open(self, method: str, x: cases.Operands) -> None:
        leaves = cases.require_gradients(x)
        self.inputs = leaves.q, leaves.k, leaves.v
        self.out = cases.prepare(self.stack, method, leaves)()
        self.do = cases.draw_do(self.out)
        self.differentiate()

    def differentiate(self) -> None:
        torch.autograd.grad(self.out, self.inputs, self.do, retain_graph=True)

    def time_backward(self, method: str, dtype: str, problem: str) -> None:
        self.differentiate()
        cases.synchronize()

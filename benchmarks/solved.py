"""Outputs and gradients with their fp64 references: what errors and incidences are taken from."""

from __future__ import annotations

from contextlib import ExitStack

import torch

from benchmarks import cases
from precision.formats import find_format
from precision.numerics.reference import attend


class SolvedForward:
    """Base of the benchmarks that look at the numbers of an output."""

    params = (cases.METHODS, cases.DTYPES, cases.SCALES, cases.PROBLEMS)
    param_names = ("method", "dtype", "scale", "problem")
    version = "1"

    def setup(self, method: str, dtype: str, scale: str, problem: str) -> None:
        self.format = find_format(dtype)
        self.x = cases.make_operands(problem, dtype, scale)
        with ExitStack() as stack:
            self.out = cases.prepare(stack, method, self.x)()
        self.right = attend(self.x)


class SolvedBackward:
    """Base of the benchmarks that look at the numbers of dq, dk and dv."""

    params = (cases.METHODS, cases.DTYPES, ["normal", "causal-gqa", "minilm-0"])
    param_names = ("method", "dtype", "problem")
    version = "1"

    def setup(self, method: str, dtype: str, problem: str) -> None:
        self.format = find_format(dtype)
        x = cases.require_gradients(cases.make_operands(problem, dtype))
        with ExitStack() as stack:
            out = cases.prepare(stack, method, x)()
            do = cases.draw_do(out)
            self.gradients = torch.autograd.grad(out, (x.q, x.k, x.v), do)
        right = attend(x).backward(do)
        self.right = right.dq, right.dk, right.dv

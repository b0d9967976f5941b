"""Long sums of equal terms: the only place where an accumulator of 16 bits shows.

Where all logits are 0 every weight is exact, and a right kernel makes hardly more than one rounding, of its output.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Generator, Tensor

from precision.checking.problems.problem import CheckProblem, Excuse, draw_normal, normal
from precision.formats import Format
from precision.operands import Operands
from precision.problem import Shape


def _between_1_and_2(*size: int, generator: Generator) -> Tensor:
    return 1 + torch.rand(size, generator=generator, dtype=torch.float64)


def _flat_keys(shape: Shape, generator: Generator, format: Format) -> Operands:
    """q = 0 and values in [1, 2): out is their mean over many keys."""
    b = shape.batch
    q = torch.zeros(b, shape.q_heads, shape.q_len, shape.d_k, dtype=torch.float64)
    k = normal(b, shape.kv_heads, shape.kv_len, shape.d_k, generator=generator)
    return Operands(q, k, _between_1_and_2(b, shape.kv_heads, shape.kv_len, shape.d_v, generator=generator))


def _near_flat(shape: Shape, generator: Generator, format: Format) -> Operands:
    """Logits of about N(0, 0.1^2), so that the sum of the weights is not exact either, and values in [1, 2)."""
    x = draw_normal(shape, generator, format)
    return replace(x, q=0.1 * x.q, v=_between_1_and_2(*x.v.shape, generator=generator))


def _flat_queries(shape: Shape, generator: Generator, format: Format) -> Operands:
    """k = 0 and q of one sign: dv and dk are sums over many queries."""
    b = shape.batch
    q = _between_1_and_2(b, shape.q_heads, shape.q_len, shape.d_k, generator=generator)
    k = torch.zeros(b, shape.kv_heads, shape.kv_len, shape.d_k, dtype=torch.float64)
    return Operands(q, k, normal(b, shape.kv_heads, shape.kv_len, shape.d_v, generator=generator))


def _gradient(shape: Shape, generator: Generator) -> Tensor:
    return _between_1_and_2(shape.batch, shape.q_heads, shape.q_len, shape.d_v, generator=generator)


PROBLEMS = [
    CheckProblem(
        "flat-keys", "accumulators of out", Shape(1, 4, 4, 2, 16384, 16, 16), _flat_keys, _gradient, backward=False
    ),
    CheckProblem("near-flat", "the sum of weights", Shape(1, 2, 2, 8, 8192, 16, 16), _near_flat, backward=False),
    # The lse of its rows, ln 3077 and a little, lies midway between two numbers of fp16, and near that of bf16.
    CheckProblem(
        "long-rows",
        "what the backward pass keeps of a row",
        Shape(1, 1, 1, 16, 3077, 16, 16),
        _near_flat,
        dtypes=("fp16", "bf16"),
    ),
    CheckProblem("flat-2048", "accumulators of dk and dv", Shape(1, 2, 2, 2048, 8, 16, 16), _flat_queries, _gradient),
    # torch's own FLASH keeps dk and dv in the 16-bit dtype between its blocks of query rows.
    CheckProblem(
        "flat-8192",
        "accumulators of dk and dv",
        Shape(1, 1, 1, 8192, 8, 16, 16),
        _flat_queries,
        _gradient,
        beyond="where dk and dv are sums over thousands of queries",
        excuse=Excuse(finite=("dk", "dv"), dtypes=("fp16", "bf16")),
    ),
]

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

_COLUMNS = 12  # of 2^12 keys the first half are +1 in the last one


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


def _contrasts(shape: Shape, generator: Generator, format: Format) -> Operands:
    """Column c of k is +1 and -1 in turn over 2^c keys, q has whole numbers from -5 to 5, and v the last columns.

    So an output is the difference of the weights of long blocks, and the sums of blocks differ from each other:
    whoever merges blocks by rounded sums is off by what they were rounded by. One more column lifts all logits by
    15, where an lse has few digits left for the sum. q.k stays below 256, exact in every format.
    """
    columns = 1.0 - 2.0 * ((torch.arange(shape.kv_len)[:, None] >> torch.arange(_COLUMNS)) % 2).double()
    k = torch.zeros(shape.batch, shape.kv_heads, shape.kv_len, shape.d_k, dtype=torch.float64)
    k[..., :_COLUMNS], k[..., _COLUMNS] = columns, 1.0
    q = torch.zeros(shape.batch, shape.q_heads, shape.q_len, shape.d_k, dtype=torch.float64)
    q[..., :_COLUMNS] = torch.randint(-5, 6, (*q.shape[:3], _COLUMNS), generator=generator)
    q[..., _COLUMNS] = round(15 * shape.d_k**0.5)
    last = torch.arange(-shape.d_v, 0) % _COLUMNS
    return Operands(q, k, columns[:, last].expand(shape.batch, shape.kv_heads, -1, -1))


def _large_sums(shape: Shape, generator: Generator, format: Format) -> Operands:
    """Even weights and values of [32, 64): in range, but their plain sum is beyond that of fp16."""
    x = _flat_keys(shape, generator, format)
    return replace(x, v=32 * x.v)


def _flat_queries(shape: Shape, generator: Generator, format: Format) -> Operands:
    """k = 0 and q of one sign: dv and dk are sums over many queries."""
    b = shape.batch
    q = _between_1_and_2(b, shape.q_heads, shape.q_len, shape.d_k, generator=generator)
    k = torch.zeros(b, shape.kv_heads, shape.kv_len, shape.d_k, dtype=torch.float64)
    return Operands(q, k, normal(b, shape.kv_heads, shape.kv_len, shape.d_v, generator=generator))


def _drifting(shape: Shape, generator: Generator, format: Format) -> Operands:
    """v drifts from -1 to 1 along the keys and k has a bias: the terms of dq are of one sign, then of the other.

    torch's own FLASH keeps dq in bf16 between blocks of keys, and eager's dk is lost in the rounding of dP - D.
    """
    x = draw_normal(shape, generator, format)
    drift = torch.linspace(-1, 1, shape.kv_len, dtype=torch.float64)[:, None]
    return replace(x, q=0.3 * x.q, k=1 + 0.3 * x.k, v=drift + 0.3 * x.v)


def _gradient(shape: Shape, generator: Generator) -> Tensor:
    return _between_1_and_2(shape.batch, shape.q_heads, shape.q_len, shape.d_v, generator=generator)


PROBLEMS = [
    CheckProblem(
        "flat-keys", "accumulators of out", Shape(1, 4, 4, 2, 16384, 16, 16), _flat_keys, _gradient, backward=False
    ),
    CheckProblem("near-flat", "the sum of weights", Shape(1, 2, 2, 8, 8192, 16, 16), _near_flat, backward=False),
    # In fp32 the logits are exact for eager alone: where they are products with log2(e), they are rounded.
    CheckProblem(
        "contrasts",
        "the merging of blocks",
        Shape(1, 1, 1, 67, 2309, 100, 6),
        _contrasts,
        backward=False,
        dtypes=("fp64", "fp16", "bf16"),
    ),
    CheckProblem(
        "large-sums",
        "sums that are not divided yet",
        Shape(1, 1, 1, 5, 3001, 16, 16),
        _large_sums,
        backward=False,
        beyond="where a sum of the values, not yet divided by the sum of the weights, exceeds 65504",
        excuse=Excuse(not_finite=("out",)),
        dtypes=("fp16",),
    ),
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
    CheckProblem(
        "drifting-keys",
        "accumulators of dq",
        Shape(1, 1, 1, 17, 4099, 16, 16),
        _drifting,
        _gradient,
        beyond="where dq and dk cancel over thousands of keys",
        excuse=Excuse(finite=("dq", "dk")),
        dtypes=("fp16", "bf16"),
    ),
]

"""The heads of FlashAttention-3's accuracy experiment, and the error of a plan pooled over them."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from typing import TypeVar

import torch
from torch import Tensor

from precision.experiments.draws import generator
from precision.inputs.outlier import Outlier
from precision.numerics import reference
from precision.operands import Operands
from precision.problem import Shape
from precision.stages import forward
from precision.stages.plan import Plan

_KEYS, _WIDTH = 8192, 128

Name = TypeVar("Name", bound=Hashable)


def pooled_rmse(plans: Mapping[Name, Plan], heads: int, rows: int, one_in: int = 1) -> dict[Name, float]:
    """RMSE of the output of each plan against fp64 attention of the unrounded inputs, over all heads together.

    Each head has `rows` queries and 8192 keys of width 128, q, k, v ~ N(0, 1) + N(0, 100) Bernoulli(0.001). The one in
    a hundred whose q is longest makes most of the error, so that single heads differ by a factor of two. With `one_in`
    n above 1 the longest n-th of the queries is computed, and one in n of the others, which count for n: as good as
    all of them, for plans that round each row by itself.
    """
    squares = dict.fromkeys(plans, 0.0)
    for head in range(heads):
        q, k, v = Outlier().draw(Shape(1, 1, 1, rows, _KEYS, _WIDTH, _WIDTH), generator(head))
        taken, weights = _stratify(q[0, 0], one_in)
        x = Operands(q[:, :, taken], k, v)
        right = reference.attend(x).out
        for name, plan in plans.items():
            of_rows = (forward.attend(plan, x).out - right).square().mean(-1)[0, 0]
            squares[name] += float((of_rows * weights).sum() / rows)
    return {name: math.sqrt(total / heads) for name, total in squares.items()}


def _stratify(q: Tensor, one_in: int) -> tuple[Tensor, Tensor]:
    """Places of the rows of q (rows, d) to compute, and for how many rows each counts."""
    rows = q.shape[0]
    by_length = q.square().sum(-1).argsort(descending=True)
    longest, others = by_length[: rows // one_in], by_length[rows // one_in :: one_in]
    count = (rows - len(longest)) / max(1, len(others))
    weights = torch.cat([torch.ones(len(longest)), torch.full((len(others),), count)]).double()
    return torch.cat([longest, others]), weights

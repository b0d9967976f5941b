"""From a problem to its operands: drawn in float64, then rounded once. The only place where inputs are made."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from precision.inputs.captured import Captured
from precision.inputs.distribution import distributions
from precision.numerics.rounding import round_to
from precision.operands import Operands
from precision.problem import Problem
from precision.scores.mask import masks
from precision.scores.scale import resolve_scale

# Added to the seed for what is drawn apart from q, k and v, so that neither depends on the other. Seeds stay below
# 2^30 and streams below 2^32, for torch's CPU generator looks at the lower 32 bits only.
_MASK_STREAM = 2**30
_UPSTREAM_STREAM = 2**31


@dataclass(frozen=True)
class Inputs:
    """The same call twice: `exact` in float64 as drawn, `rounded` to the problem's dtype as a kernel gets it.

    An additive mask is rounded with q, k and v; a kernel requires it in their dtype.
    """

    exact: Operands
    rounded: Operands


def make_inputs(problem: Problem, device: torch.device) -> Inputs:
    """The operands of a problem on a device; the same problem gives the same numbers on every device."""
    distribution = distributions.build(problem.inputs)
    q, k, v = distribution.draw(problem.shape, torch.Generator().manual_seed(problem.seed))
    if isinstance(distribution, Captured) and problem.mask == "captured":
        attn_mask, is_causal = distribution.mask()
    else:
        mask = masks.build(problem.mask)
        attn_mask = mask.draw(problem.shape, torch.Generator().manual_seed(problem.seed + _MASK_STREAM))
        is_causal = mask.is_causal
    exact = Operands(q, k, v, attn_mask, is_causal, resolve_scale(problem.scale, problem.shape)).to(device)
    return Inputs(exact, round_operands(exact, problem.dtype))


def make_upstream(problem: Problem, device: torch.device) -> Tensor:
    """The gradient of the output, dO ~ N(0, 1) of shape (B, Hq, L, d_v), drawn in float64 and rounded once."""
    shape = problem.shape
    generator = torch.Generator().manual_seed(problem.seed + _UPSTREAM_STREAM)
    size = (shape.batch, shape.q_heads, shape.q_len, shape.d_v)
    return round_to(torch.randn(size, generator=generator, dtype=torch.float64), problem.dtype).to(device)


def round_operands(exact: Operands, dtype: str) -> Operands:
    """Every floating tensor of the call rounded once to the dtype."""
    mask = exact.attn_mask
    if mask is not None and mask.is_floating_point():
        mask = round_to(mask, dtype)
    return Operands(
        round_to(exact.q, dtype),
        round_to(exact.k, dtype),
        round_to(exact.v, dtype),
        mask,
        exact.is_causal,
        exact.scale,
    )

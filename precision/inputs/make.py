"""From a problem to its operands: drawn in float64, then rounded once. The only place where inputs are made."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from precision.inputs.captured import Captured
from precision.inputs.distribution import distributions
from precision.numerics.rounding import round_to
from precision.operands import Operands
from precision.problem import Problem
from precision.scores.mask import masks
from precision.scores.scale import resolve_scale

# Added to the seed of the mask's generator: q, k and v are the same under every mask, and no mask is a function of q.
# torch's CPU generator looks at the lower 32 bits of a seed only, so it must be less than 2^32.
_MASK_STREAM = 2**31


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

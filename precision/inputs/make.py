"""From a problem to its operands: drawn in float64, then rounded once. The only place where inputs are made."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from precision.inputs.find import build_inputs
from precision.inputs.own_call import OwnCall
from precision.numerics.rounding import round_to, torch_dtype
from precision.operands import Operands
from precision.problem import Problem
from precision.scores.mask import OwnMask, masks
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
    call = _make_call(problem).to(device)
    # A call in the dtype is to reach the kernel as it stands: strides, storage and a mask of another dtype included.
    rounded = call if call.q.dtype == torch_dtype(problem.dtype) else round_operands(call, problem.dtype)
    return Inputs(_in_float64(call), rounded)


def _make_call(problem: Problem) -> Operands:
    """The call as drawn, or as the inputs bring it."""
    inputs, mask = build_inputs(problem.inputs), masks.build(problem.mask)
    if isinstance(inputs, OwnCall):
        call = inputs.operands(problem.dtype)
    else:
        call = Operands(*inputs.draw(problem.shape, torch.Generator().manual_seed(problem.seed)))
    if not (isinstance(inputs, OwnCall) and isinstance(mask, OwnMask)):
        drawn = mask.draw(problem.shape, torch.Generator().manual_seed(problem.seed + _MASK_STREAM))
        call = replace(call, attn_mask=drawn, is_causal=mask.is_causal)
    return replace(call, scale=resolve_scale(problem.scale, problem.shape))


def _in_float64(x: Operands) -> Operands:
    mask = x.attn_mask
    if mask is not None and mask.is_floating_point():
        mask = mask.double()
    return replace(x, q=x.q.double(), k=x.k.double(), v=x.v.double(), attn_mask=mask)


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
    q, k, v = (round_to(tensor, dtype) for tensor in (exact.q, exact.k, exact.v))
    return replace(exact, q=q, k=k, v=v, attn_mask=mask)

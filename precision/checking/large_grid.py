"""More heads than a grid of 65,535 blocks holds: many copies of a small batch, each of which must come out right."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from torch import Tensor

from precision.checking.truth import Truth
from precision.kernel import first_line

# The largest grid that a GPU launches along its second and third dimension (CUDA C++ Programming Guide, "Technical
# Specifications per Compute Capability").
_LARGEST_GRID = 65_535
REFUSED = f"more than {_LARGEST_GRID} heads refused"
# A kernel that goes over its heads one by one has no grid, and would take too long.
_SECONDS = 2.0


def find_lost_copies(
    forward: Callable[..., Tensor], is_wrong: Callable[[Tensor, Truth], bool], truth: Truth
) -> Iterator[str]:
    """A sentence where a copy of the call is wrong among many, but right by itself, or where so many are refused."""
    x = truth.call.x
    heads = x.q.shape[0] * x.q.shape[1]
    copies = _LARGEST_GRID // heads + 1
    begin = time.perf_counter()
    alone = forward(x)
    seconds = copies * (time.perf_counter() - begin)
    if seconds > _SECONDS or is_wrong(alone, truth):
        return
    try:
        out = forward(replace(x, **{name: getattr(x, name).repeat(copies, 1, 1, 1) for name in ("q", "k", "v")}))
    except Exception as error:  # a kernel may raise anything
        yield f"{REFUSED}: {type(error).__name__}: {first_line(error)}"
        return
    if any(is_wrong(copy, truth) for copy in out.chunk(copies) if not torch.equal(copy, alone)):
        yield f"out is wrong with {copies * heads:,} heads in all, more than a grid of blocks holds"

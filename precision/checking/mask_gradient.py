"""The gradient of a float mask, which a learned bias needs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from precision.checking.allowed import SUM_DEVIATIONS, YARDSTICK_FACTOR
from precision.checking.truth import YARDSTICK, Truth
from precision.kernel import Kernel, first_line
from precision.numerics.bounds import Matrices
from precision.numerics.metrics import ulp

NO_GRADIENT = "the mask gets no gradient"


def judge_mask_gradient(kernel: Kernel, truth: Truth) -> Iterator[str]:
    """A sentence where the mask of the call gets none, which is a limit, or a wrong one.

    Each element may be off by twice the largest error of same-dtype eager, by what sums in fp32 lose, and by one
    rounding, as in `allowed`.
    """
    try:
        found = _gradient(kernel, truth)
    except Exception as error:  # a kernel may raise anything
        yield f"{NO_GRADIENT}: {first_line(error)}"
        return
    if found is None:
        yield NO_GRADIENT
        return
    stages = Matrices(truth.right, truth.call.do)
    right = stages.ds.sum_to_size(found.shape)  # of a mask that is broadcast, the sum over where it is
    sums = (truth.sum_roundoff * stages.p * (stages.dp_size + stages.d_size)).sum_to_size(found.shape)
    eager = _gradient(YARDSTICK, truth)
    assert eager is not None
    allowed = YARDSTICK_FACTOR * (eager.double() - right).abs().max() + SUM_DEVIATIONS / math.sqrt(3) * sums
    off = (found.double() - right).nan_to_num(math.inf).abs()
    if bool((off > allowed + ulp(right, truth.format) / 2).any()):
        yield f"the gradient of the mask is off by {float(off.max()):.2g}, {float(allowed.max()):.2g} allowed"


def _gradient(kernel: Kernel, truth: Truth) -> Tensor | None:
    """In the shape and the dtype of the mask; None where the output does not depend on it."""
    x = truth.call.x
    assert x.attn_mask is not None
    q, mask = x.q.detach().requires_grad_(), x.attn_mask.detach().clone().requires_grad_()
    with torch.enable_grad():
        out = kernel.forward(replace(x, q=q, attn_mask=mask))
        if not out.requires_grad:
            return None
        return torch.autograd.grad(out, (q, mask), truth.call.do, allow_unused=True)[1]

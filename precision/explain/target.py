"""The kernel that is explained: a backend that ships, or a function of the user's."""

from __future__ import annotations

from torch import Tensor

from precision.backends.backend import Backend, backends
from precision.backends.own import OwnKernel
from precision.errors import UsageError
from precision.loading import attempt
from precision.operands import Operands


def find_target(target: str) -> Backend:
    """The backend of that name, or FILE.py:FUNCTION or MODULE:FUNCTION; raises UsageError when there is none."""
    is_own = ":" in target.partition("[")[0]
    return OwnKernel(target) if is_own else backends.build(target)


def run_target(target: str, backend: Backend, x: Operands) -> Tensor:
    """What it gives for x, (B, Hq, L, d_v).

    Raises Absent or Refused where it cannot, and UsageError where what it returns is no output of attention.
    """
    with backend.prepare(x) as call:
        out = attempt(target, "cannot be called", call)
    wanted = (*x.q.shape[:3], x.v.shape[-1])
    if not isinstance(out, Tensor) or out.shape != wanted or out.dtype != x.q.dtype:
        raise UsageError(f"{target} must return a tensor {wanted} in {x.q.dtype}; see what `precision check` says")
    return out

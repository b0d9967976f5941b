"""`precision.check`: the verdict on a kernel."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace

from torch import Tensor

from precision.checking.conduct import Conduct
from precision.checking.plan import plan
from precision.checking.result import CheckResult
from precision.checking.session import Level, open_session
from precision.errors import UsageError
from precision.formats import find_format
from precision.kernel import Kernel
from precision.loading import loaded
from precision.sweep.environment import find_device

_NOT_IMPORTABLE = "# The function cannot be imported by its name: put it in the place of `attention`.\n"


def check(
    target: str | Callable[..., Tensor],
    *,
    dtypes: Sequence[str] = ("fp32", "fp16", "bf16"),
    device: str = "auto",
    backward: bool = True,
    strict: bool = False,
    level: Level = "full",
    budget: float = math.inf,
) -> CheckResult:
    """Check f(q, k, v, attn_mask=None, is_causal=False, scale=None, enable_gqa=False), tensors (B, H, L, d).

    `target` is the function, or names it as FILE.py:FUNCTION or package.module:FUNCTION. Keywords that it does not
    take are refused features, which are limits. `strict` makes limits a failure of `passed`. The level `quick` takes
    one input a problem and ends at the first failure in a dtype. After `budget` seconds no problem begins, and those
    that were not reached are a limit. Raises UsageError when there is no such function, it does not take q, k and v,
    or a dtype or device is unknown.

    The kernel is called in this process, so it may be a closure. One that never returns or crashes takes this
    process with it. `precision check` on the command line calls it in a process of its own.
    """
    for dtype in dtypes:
        find_format(dtype)
    if not dtypes:
        raise UsageError("there is no dtype to check in; name at least one")
    place = find_device(device)
    if not isinstance(target, str) and not callable(target):
        raise UsageError(f"{target!r} is not a function; give one that takes q, k and v")
    with loaded(target) if isinstance(target, str) else nullcontext(target) as function:
        kernel = Kernel.of(function)
        name = target if isinstance(target, str) else kernel.address
        with open_session(name, kernel, place, backward, level) as session:
            result = Conduct(name, plan(dtypes), level, strict, budget).run(session)
    if result.reproduction and not isinstance(target, str) and not kernel.is_importable:
        return replace(result, reproduction=_NOT_IMPORTABLE + result.reproduction)
    return result

"""For other people's tests: one line that fails, with the reasons, when an attention kernel is not right."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from precision.checking.api import check
from precision.checking.session import Level


def assert_accurate(
    kernel: str | Callable[..., Tensor],
    *,
    dtypes: Sequence[str] = ("fp32", "fp16", "bf16"),
    device: str = "auto",
    backward: bool = True,
    strict: bool = False,
    level: Level = "quick",
) -> None:
    """Raise AssertionError with the reasons when `precision.check` fails, or with the limits when it is strict.

    The arguments are those of `precision.check`, and the kernel is called in this process as there; the level `quick`
    stops at the first failure in a dtype, `full` goes on to the others. Raises UsageError as `precision.check` does.
    """
    __tracebackhide__ = True  # pytest shows the caller's line
    result = check(kernel, dtypes=dtypes, device=device, backward=backward, strict=strict, level=level)
    if not result.passed:
        sentences = "\n".join(f"- {sentence}" for sentence in result.reasons or result.limits)
        raise AssertionError(f"{result.kernel}: {result.verdict.value}\n{sentences}")

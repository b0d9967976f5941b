"""Which kernels there are: the wrong ones with the dtypes in which their fault exists, and the right ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from torch import Tensor

T = TypeVar("T", bound=Callable[..., Any])

ALL = ("fp32", "fp16", "bf16")
NARROW = ("fp16", "bf16")


@dataclass(frozen=True)
class Wrong:
    """A kernel with one fault; `says` are words that the reasons must hold."""

    function: Callable[..., Tensor]
    dtypes: tuple[str, ...]
    says: str

    @property
    def name(self) -> str:
        return self.function.__name__


WRONG: list[Wrong] = []
RIGHT: list[Callable[..., Tensor]] = []


def wrong(*dtypes: str, says: str = "") -> Callable[[T], T]:
    """Register a wrong kernel; without dtypes its fault exists in all three."""

    def add(function: T) -> T:
        WRONG.append(Wrong(function, dtypes or ALL, says))
        return function

    return add


def right(function: T) -> T:
    """Register a right kernel."""
    RIGHT.append(function)
    return function

"""What a backend is, how it says that it cannot, and the registry of all of them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

from torch import Tensor

from precision.operands import Operands
from precision.registry import Registry

Attention = Callable[[], Tensor]


class Absent(Exception):
    """This backend is not on this machine; the message is the reason."""


class Refused(Exception):
    """This backend cannot do this problem; the message is the reason, the library's own where it gives one."""


class Backend(Protocol):
    """A frozen dataclass whose fields are the options of the method."""

    @property
    def max_subtraction(self) -> bool:
        """Whether the softmax subtracts each row's maximum before it takes the exponential."""
        ...

    def prepare(self, x: Operands) -> AbstractContextManager[Attention]:
        """A context in which the yielded function computes attention of x, once for every call, into (B, Hq, L, d_v).

        What the backend must switch on it switches on here, outside of what is timed. Raises Absent or
        Refused before anything is computed; it never hands the problem to another backend.
        """
        ...


backends: Registry[Backend] = Registry("backend", "precision.backends")

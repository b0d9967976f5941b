"""Inputs that bring their own call: shape, mask and scale come with q, k and v and are not drawn for a shape."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from precision.operands import Operands
from precision.problem import Shape


@runtime_checkable
class OwnCall(Protocol):
    """One call of attention that is there, whatever shape is asked for."""

    def operands(self, dtype: str) -> Operands:
        """The call on the CPU, in float64 to be rounded, or in the dtype and the layout that a kernel is to get."""
        ...


@dataclass(frozen=True)
class Origin:
    """Inputs (a canonical spec) with their shape, and what a problem has where the configuration is silent.

    `digest` identifies the data of inputs that bring their own call, and `source` says where the call was made.
    """

    inputs: str
    shape: Shape
    dtypes: tuple[str, ...]
    seeds: tuple[int, ...] = (0,)
    mask: str = "none"
    scale: str | float = "sqrt_dk"
    digest: str = ""
    source: str = ""

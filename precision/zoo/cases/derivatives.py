"""Derivatives beyond the gradient, which few fused kernels have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from precision.operands import Operands
from precision.zoo.case import FLOATS, normal_operands, zoo


@zoo.register("second-order")
@dataclass(frozen=True)
class SecondOrder:
    """A gradient of the gradient (gradgrad), or a derivative in forward mode (jvp): there, or refused with a reason."""

    asks: Literal["gradgrad", "jvp"] = "gradgrad"
    dtypes: ClassVar[tuple[str, ...]] = FLOATS

    def operands(self, dtype: str) -> Operands:
        return normal_operands(dtype)

"""Scales that nobody chooses and some code computes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from precision.operands import Operands
from precision.zoo.case import FLOATS, normal_operands, zoo


@zoo.register("scale-values")
@dataclass(frozen=True)
class ScaleValue:
    """The scale is 0 (the mean of v), negative, NaN or infinite: the output is as in fp64, and never 0 for NaN."""

    scale: float = 0.0
    dtypes: ClassVar[tuple[str, ...]] = FLOATS

    def operands(self, dtype: str) -> Operands:
        return replace(normal_operands(dtype), scale=self.scale)

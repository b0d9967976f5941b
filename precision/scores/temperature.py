"""A learned temperature beside 1/sqrt(d_k)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from precision.problem import Shape
from precision.scores.scale import scale_rules


@scale_rules.register("temperature")
@dataclass(frozen=True)
class Temperature:
    """gain / sqrt(d_k): `gain` is what a model learned to multiply its logits by; 1 changes nothing."""

    gain: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0

    def value(self, shape: Shape) -> float:
        return self.gain / math.sqrt(shape.d_k)

"""Queries and keys of a chosen size: the knob that turns up the logits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field
from torch import Generator

from precision.inputs.distribution import Drawn, distributions, draw_normal
from precision.problem import Shape


@distributions.register("large")
@dataclass(frozen=True)
class Large:
    """q, k ~ N(0, std^2), v ~ N(0, 1): q.k has standard deviation std^2 sqrt(d_k)."""

    std: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 4.0

    def draw(self, shape: Shape, generator: Generator) -> Drawn:
        q, k, v = draw_normal(shape, generator)
        return Drawn(q * self.std, k * self.std, v)

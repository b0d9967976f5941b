"""Independent standard normal inputs: the assumption behind 1/sqrt(d_k)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Generator

from precision.inputs.distribution import Drawn, distributions, draw_normal
from precision.problem import Shape


@distributions.register("normal")
@dataclass(frozen=True)
class Normal:
    """q, k, v ~ N(0, 1): q.k has standard deviation sqrt(d_k)."""

    def draw(self, shape: Shape, generator: Generator) -> Drawn:
        return draw_normal(shape, generator)

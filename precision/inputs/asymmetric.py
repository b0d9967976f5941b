"""Only one of the two normalised: keys of norm 1, queries of any size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field
from torch import Generator

from precision.inputs.distribution import Drawn, distributions, draw_normal
from precision.inputs.qk_norm import normalise
from precision.problem import Shape


@distributions.register("asymmetric")
@dataclass(frozen=True)
class Asymmetric:
    """q ~ N(0, std^2), every key of norm 1: q.k has variance std^2, whatever d_k is."""

    std: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 3.0

    def draw(self, shape: Shape, generator: Generator) -> Drawn:
        q, k, v = draw_normal(shape, generator)
        return Drawn(self.std * q, normalise(k, "l2"), v)

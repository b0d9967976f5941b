"""Keys that point where a query points: large positive logits, as trained heads have them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

import torch
from pydantic import Field
from torch import Generator

from precision.inputs.distribution import Drawn, distributions, draw_normal
from precision.problem import Shape


@distributions.register("aligned")
@dataclass(frozen=True)
class Aligned:
    """Key j is `rho` query j + sqrt(1 - rho^2) noise, so q_j.k_j is about rho d_k; the other logits stay normal.

    With fewer queries than keys the queries repeat; with grouped heads a key head follows its first query head.
    """

    rho: Annotated[float, Field(ge=-1, le=1)] = 0.9

    def draw(self, shape: Shape, generator: Generator) -> Drawn:
        q, noise, v = draw_normal(shape, generator)
        if shape.q_len == 0:
            return Drawn(q, noise, v)
        group = shape.q_heads // shape.kv_heads
        partner = torch.arange(shape.kv_len) % shape.q_len
        k = self.rho * q[:, ::group, partner] + math.sqrt(1.0 - self.rho**2) * noise
        return Drawn(q, k, v)

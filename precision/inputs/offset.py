"""Inputs with a common mean: every score is near d_k mean^2, so fp16 overflows before the scale is applied."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from pydantic import Field
from torch import Generator, Tensor

from precision.inputs.distribution import Drawn, distributions
from precision.problem import Shape


@distributions.register("offset")
@dataclass(frozen=True)
class Offset:
    """q, k, v uniform on mean +- amplitude, the overflow case of PASA (arXiv 2503.01873)."""

    mean: Annotated[float, Field(allow_inf_nan=False)] = 30.0
    amplitude: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.5

    def draw(self, shape: Shape, generator: Generator) -> Drawn:
        def uniform(heads: int, length: int, width: int) -> Tensor:
            unit = torch.rand(shape.batch, heads, length, width, generator=generator, dtype=torch.float64)
            return self.mean + self.amplitude * (2 * unit - 1)

        return Drawn(
            uniform(shape.q_heads, shape.q_len, shape.d_k),
            uniform(shape.kv_heads, shape.kv_len, shape.d_k),
            uniform(shape.kv_heads, shape.kv_len, shape.d_v),
        )

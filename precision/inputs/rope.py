"""Rotary position embeddings: q and k turned by an angle that grows with their position."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from pydantic import Field
from torch import Generator, Tensor

from precision.inputs.distribution import Drawn, distributions, draw_normal
from precision.problem import Shape


@distributions.register("rope")
@dataclass(frozen=True)
class Rope:
    """q, k ~ N(0, 1), rotated by their positions from `start` on (Su et al., RoFormer, 2021, eq. 34)."""

    base: Annotated[float, Field(gt=1, allow_inf_nan=False)] = 10000.0
    start: Annotated[int, Field(ge=0, lt=2**31)] = 0

    def draw(self, shape: Shape, generator: Generator) -> Drawn:
        q, k, v = draw_normal(shape, generator)
        return Drawn(rotate(q, self.base, self.start), rotate(k, self.base, self.start), v)


def rotate(x: Tensor, base: float = 10000.0, start: int = 0) -> Tensor:
    """x (..., L, d): components i and i + d // 2 of row n turned by (start + n) base^(-2 i / d).

    An odd last component stays, as the components beyond `rotary_dim` do in models that rotate only some.
    """
    half = x.shape[-1] // 2
    position = torch.arange(start, start + x.shape[-2], dtype=torch.float64, device=x.device)
    frequency = base ** (-torch.arange(half, dtype=torch.float64, device=x.device) / max(half, 1))
    angle = position[:, None] * frequency  # (L, half)
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    return torch.cat([a * cos - b * sin, a * sin + b * cos, rest], -1)

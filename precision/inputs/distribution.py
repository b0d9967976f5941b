"""What a distribution of inputs is, and their registry. One file a distribution."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import Generator, Tensor

from precision.inputs.own_call import OwnCall
from precision.problem import Shape
from precision.registry import Registry


class Drawn(NamedTuple):
    """q (B, Hq, L, d_k), k (B, Hkv, S, d_k) and v (B, Hkv, S, d_v) in float64, unrounded."""

    q: Tensor
    k: Tensor
    v: Tensor


class Distribution(Protocol):
    """A named way to make q, k and v."""

    def draw(self, shape: Shape, generator: Generator) -> Drawn:
        """Tensors of the shape, from the seeded generator alone."""
        ...


distributions: Registry[Distribution | OwnCall] = Registry("distribution", "precision.inputs")


def draw_normal(shape: Shape, generator: Generator) -> Drawn:
    """Independent N(0, 1) components, from which most distributions start."""

    def normal(heads: int, length: int, width: int) -> Tensor:
        return torch.randn(shape.batch, heads, length, width, generator=generator, dtype=torch.float64)

    return Drawn(
        normal(shape.q_heads, shape.q_len, shape.d_k),
        normal(shape.kv_heads, shape.kv_len, shape.d_k),
        normal(shape.kv_heads, shape.kv_len, shape.d_v),
    )

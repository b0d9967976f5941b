"""A quantised key cache: keys rounded to a few integers and scaled back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Generator, Tensor

from precision.inputs.distribution import Drawn, distributions, draw_normal
from precision.problem import Shape

Scope = Literal["token", "tensor"]


@distributions.register("quantised_k")
@dataclass(frozen=True)
class QuantisedK:
    """q, k, v ~ N(0, 1), k rounded to `bits` bits, symmetric, with one step per token or for the whole tensor."""

    bits: Annotated[int, Field(ge=2, le=16)] = 8
    per: Scope = "token"

    def draw(self, shape: Shape, generator: Generator) -> Drawn:
        q, k, v = draw_normal(shape, generator)
        return Drawn(q, quantise(k, self.bits, self.per), v)


def quantise(x: Tensor, bits: int, per: Scope) -> Tensor:
    """x (..., S, d) rounded to step * {-n, ..., n}, n = 2^(bits - 1) - 1; n steps are the largest |x| in scope."""
    if x.numel() == 0:
        return x
    largest = x.abs().amax(-1, keepdim=True) if per == "token" else x.abs().max()
    step: Tensor = (largest / (2 ** (bits - 1) - 1)).clamp_min(1e-300)  # all zero stays zero
    return torch.round(x / step).mul(step)

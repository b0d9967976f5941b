"""QK-norm: every query and key brought to one size before they meet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Generator, Tensor

from precision.inputs.distribution import Drawn, distributions, draw_normal
from precision.problem import Shape

Norm = Literal["l2", "rms", "layer"]


@distributions.register("qk_norm")
@dataclass(frozen=True)
class QkNorm:
    """q, k ~ N(0, 1), each normalised: l2 (Henry et al. 2020), rms or layer (Dehghani et al. 2023); times gain."""

    norm: Norm = "rms"
    gain: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0

    def draw(self, shape: Shape, generator: Generator) -> Drawn:
        q, k, v = draw_normal(shape, generator)
        return Drawn(self.gain * normalise(q, self.norm), self.gain * normalise(k, self.norm), v)


def normalise(x: Tensor, norm: Norm) -> Tensor:
    """x (..., d) with norm 1 (l2), mean square 1 (rms), or mean 0 and variance 1 (layer) along its last dimension."""
    width = (x.shape[-1],)
    if norm == "l2":
        return torch.nn.functional.normalize(x, dim=-1)
    if norm == "rms":
        return torch.nn.functional.rms_norm(x, width)
    return torch.nn.functional.layer_norm(x, width)

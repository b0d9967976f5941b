"""Normal inputs with rare large entries, as FlashAttention-3 draws them to imitate the outliers of language models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from pydantic import Field
from torch import Generator, Tensor

from precision.inputs.distribution import Drawn, distributions, draw_normal
from precision.problem import Shape


@distributions.register("outlier")
@dataclass(frozen=True)
class Outlier:
    """q, k, v ~ N(0, 1) + N(0, std^2) Bernoulli(share) (Shah et al., FlashAttention-3, 2024, section 4.3)."""

    std: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 10.0
    share: Annotated[float, Field(ge=0, le=1)] = 0.001

    def draw(self, shape: Shape, generator: Generator) -> Drawn:
        def with_outliers(x: Tensor) -> Tensor:
            extra = torch.randn(x.shape, generator=generator, dtype=torch.float64) * self.std
            hit = torch.rand(x.shape, generator=generator, dtype=torch.float64) < self.share
            return x + torch.where(hit, extra, 0.0)

        q, k, v = draw_normal(shape, generator)
        return Drawn(with_outliers(q), with_outliers(k), with_outliers(v))

"""Scaled dot-product attention's own weighting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from precision.scores.weighting import Weighting, weightings


@weightings.register("softmax")
@dataclass(frozen=True)
class Softmax(Weighting):
    """softmax(scale q.k) over the keys (Vaswani et al. 2017)."""

    is_softmax: ClassVar[bool] = True

    def weights(self, q: Tensor, k: Tensor, scale: float) -> Tensor:
        return (q @ k.mT * scale).softmax(-1)

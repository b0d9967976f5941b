"""Scaled dot-product attention's own weighting."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from precision.scores.weighting import weightings


@weightings.register("softmax")
@dataclass(frozen=True)
class Softmax:
    """softmax(scale q.k) over the keys (Vaswani et al. 2017)."""

    def weights(self, q: Tensor, k: Tensor, scale: float) -> Tensor:
        return (q @ k.mT * scale).softmax(-1)

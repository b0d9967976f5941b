"""Linear attention: similarity is a product of positive features, so that no exponential is taken of a score."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from precision.scores.weighting import Weighting, weightings


@weightings.register("linear")
@dataclass(frozen=True)
class Linear(Weighting):
    """phi(q).phi(k) over its sum, phi(x) = elu(x) + 1 (Katharopoulos et al. 2020, eq. 7); the scale has no place."""

    def weights(self, q: Tensor, k: Tensor, scale: float) -> Tensor:
        return normalise_products(*(torch.nn.functional.elu(x) + 1 for x in (q, k)))


def normalise_products(phi_q: Tensor, phi_k: Tensor) -> Tensor:
    """phi(q).phi(k) over its sum over the keys, (..., L, S), for positive features of width m."""
    products = phi_q @ phi_k.mT
    return products / products.sum(-1, keepdim=True)

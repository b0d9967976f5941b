"""Performer: random positive features whose products estimate the softmax kernel without bias."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from precision.scores.linear import normalise_products
from precision.scores.weighting import weightings


@weightings.register("performer")
@dataclass(frozen=True)
class Performer:
    """phi(x) = exp(w.x - |x|^2 / 2), w ~ N(0, I), on sqrt(scale) q and sqrt(scale) k (Choromanski et al. 2021)."""

    features: Annotated[int, Field(ge=1)] = 256
    seed: Annotated[int, Field(ge=0)] = 0

    def weights(self, q: Tensor, k: Tensor, scale: float) -> Tensor:
        stream = torch.Generator().manual_seed(self.seed)
        w = torch.randn(q.shape[-1], self.features, generator=stream, dtype=q.dtype)
        log_q, log_k = (_log_features(x * math.sqrt(scale), w) for x in (q, k))
        # A factor of a query, and one of all keys, cancels in the quotient: the features stay within the range.
        return normalise_products(
            (log_q - log_q.amax(-1, keepdim=True)).exp(), (log_k - log_k.amax((-2, -1), keepdim=True)).exp()
        )


def _log_features(x: Tensor, w: Tensor) -> Tensor:
    return x @ w - x.square().sum(-1, keepdim=True) / 2

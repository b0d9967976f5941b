"""Performer: random positive features, which estimate the softmax kernel without bias or are a kernel of their own."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from precision.scores.linear import normalise_products
from precision.scores.weighting import Weighting, weightings

_FLOOR = 1e-3  # of the authors' code: no key without weight


@weightings.register("performer")
@dataclass(frozen=True)
class Performer(Weighting):
    """exp(w.x - |x|^2 / 2) or relu(w.x) + 0.001, w ~ N(0, I), x sqrt(scale) q or k (Choromanski et al. 2021)."""

    features: Annotated[int, Field(ge=1)] = 256
    seed: Annotated[int, Field(ge=0)] = 0
    kernel: Literal["exp", "relu"] = "exp"

    def weights(self, q: Tensor, k: Tensor, scale: float) -> Tensor:
        stream = torch.Generator().manual_seed(self.seed)
        # Drawn in fp64, so that every dtype has the same features.
        w = torch.randn(q.shape[-1], self.features, generator=stream, dtype=torch.float64).to(q)
        root = math.sqrt(abs(scale))
        q, k = math.copysign(root, scale) * q, root * k
        if self.kernel == "relu":
            return normalise_products(*((x @ w).relu() + _FLOOR for x in (q, k)))
        log_q, log_k = (_log_features(x, w) for x in (q, k))
        # A factor of a query, and one of all keys, cancels in the quotient: the features stay within the range.
        return normalise_products(
            (log_q - log_q.amax(-1, keepdim=True)).exp(), (log_k - log_k.amax((-2, -1), keepdim=True)).exp()
        )


def _log_features(x: Tensor, w: Tensor) -> Tensor:
    return x @ w - x.square().sum(-1, keepdim=True) / 2

"""Additive scores: a one-layer network looks at query and key, and no product of the two is taken."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from precision.scores.weighting import Weighting, weightings


@weightings.register("bahdanau")
@dataclass(frozen=True)
class Additive(Weighting):
    """softmax of v.tanh(W1 q + W2 k) (Bahdanau et al. 2015); W1, W2 and v ~ N(0, 1/d_k) are drawn from `seed`."""

    seed: Annotated[int, Field(ge=0)] = 0

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        """(..., L, S), a key at a time, since all the hidden layers together are (..., L, S, d_k)."""
        d_k = q.shape[-1]
        stream = torch.Generator().manual_seed(self.seed)
        # Drawn in fp64, so that every dtype has the same network.
        w1, w2 = (torch.randn(2, d_k, d_k, generator=stream, dtype=torch.float64) / math.sqrt(d_k)).to(q)
        v = (torch.randn(d_k, generator=stream, dtype=torch.float64) / math.sqrt(d_k)).to(q)
        from_q, from_k = q @ w1, k @ w2
        return torch.stack([(from_q + key[..., None, :]).tanh() @ v for key in from_k.unbind(-2)], -1)

    def weights(self, q: Tensor, k: Tensor, scale: float) -> Tensor:
        return self.scores(q, k).softmax(-1)

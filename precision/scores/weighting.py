"""Weightings: how a query weighs the keys. The softmax of scaled products is one of them."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from precision.registry import Registry


class Weighting(Protocol):
    """A rule from q and k to weights; out is weights @ v."""

    def weights(self, q: Tensor, k: Tensor, scale: float) -> Tensor:
        """(..., L, S) for q (..., L, d_k) and k (..., S, d_k); `scale` multiplies q.k where there is a q.k."""
        ...


weightings: Registry[Weighting] = Registry("weighting", "precision.scores")

"""Weightings: how a query weighs the keys. The softmax of scaled products is one of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from torch import Tensor

from precision.registry import Registry


class Weighting(ABC):
    """A frozen dataclass: a rule from q and k to weights, without a mask."""

    is_softmax: ClassVar[bool] = False  # whether it is softmax(scale q.k); any other function is its own reference

    @abstractmethod
    def weights(self, q: Tensor, k: Tensor, scale: float) -> Tensor:
        """(..., L, S) for q (..., L, d_k) and k (..., S, d_k); `scale` multiplies q.k where there is a q.k."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
        """The weighted values, (..., L, d_v), for v (..., S, d_v)."""
        return self.weights(q, k, scale) @ v


weightings: Registry[Weighting] = Registry("weighting", "precision.scores")

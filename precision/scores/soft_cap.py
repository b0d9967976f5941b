"""Soft-capping: logits that cannot grow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field
from torch import Tensor

from precision.scores.weighting import Weighting, weightings


@weightings.register("soft_cap")
@dataclass(frozen=True)
class SoftCap(Weighting):
    """softmax(cap tanh(scale q.k / cap)): no logit beyond +-cap (Gemma 2, 2024, section 2, with cap 50)."""

    cap: Annotated[float, Field(gt=0)] = 50.0

    def weights(self, q: Tensor, k: Tensor, scale: float) -> Tensor:
        return soft_cap(q @ k.mT * scale, self.cap).softmax(-1)


def soft_cap(logits: Tensor, cap: float) -> Tensor:
    """cap tanh(logits / cap), any shape."""
    return cap * (logits / cap).tanh()

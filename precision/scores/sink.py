"""Attention sinks: a logit that takes weight and gives nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from precision.scores.weighting import Weighting, weightings


@weightings.register("sink")
@dataclass(frozen=True)
class Sink(Weighting):
    """exp(s_j) / (exp(logit) + sum exp(s)): weights that may sum to less than 1 (gpt-oss, 2025, learns the logit)."""

    logit: Annotated[float, Field(allow_inf_nan=False)] = 0.0

    def weights(self, q: Tensor, k: Tensor, scale: float) -> Tensor:
        logits = q @ k.mT * scale
        sink = torch.full_like(logits[..., :1], self.logit)
        return torch.cat([logits, sink], -1).softmax(-1)[..., :-1]

"""Attention in three lines, as one would first write it: the yardstick for errors and for the reference's cost."""

from __future__ import annotations

import torch
from torch import Tensor

from precision.operands import Operands


def attend_naively(x: Operands) -> Tensor:
    """Attention of x in its own dtype, (B, H, L, d_v), with a boolean mask or none; not causal, heads not grouped."""
    scores = x.q @ x.k.mT * x.scale_value  # (B, H, L, S)
    scores = scores if x.attn_mask is None else scores.masked_fill(~x.attn_mask, -torch.inf)
    return scores.softmax(-1) @ x.v

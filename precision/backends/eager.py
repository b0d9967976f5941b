"""Attention as a textbook writes it, every operation in the dtype of the inputs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from precision.backends.backend import Attention, Refused, backends
from precision.operands import Operands


@backends.register("eager")
@dataclass(frozen=True)
class Eager:
    """Plain torch operations, each rounding to the input dtype; max-subtraction and the scale's place are options."""

    max_subtraction: bool = True
    scale: Literal["after", "before"] = "after"

    @contextmanager
    def prepare(self, x: Operands) -> Iterator[Attention]:
        self.require(x)
        yield partial(self.attend, x)

    def require(self, x: Operands) -> None:
        """Raise Refused where plain operations give another dtype or nothing at all."""
        if x.k.shape[2] == 0:
            raise Refused("kv_len is 0 and a softmax needs a key")
        mask = x.attn_mask
        if mask is not None and mask.dtype not in (torch.bool, x.q.dtype):
            raise Refused(f"attn_mask is {mask.dtype} and q is {x.q.dtype}; their sum would have another dtype than q")

    def attend(self, x: Operands) -> Tensor:
        """Attention of x, (B, Hq, L, d_v) in the dtype of x."""
        q, k, v = x.q, x.k, x.v
        if x.enable_gqa:
            group = q.shape[1] // k.shape[1]
            k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        if self.scale == "before":
            scores = (q * x.scale_value) @ k.mT  # (B, Hq, L, S)
        else:
            scores = (q @ k.mT) * x.scale_value
        scores = _apply_mask(scores, x)
        if self.max_subtraction:
            scores = scores - scores.amax(-1, keepdim=True)
        weights = scores.exp()
        return (weights / weights.sum(-1, keepdim=True)) @ v


def _apply_mask(scores: Tensor, x: Operands) -> Tensor:
    if x.is_causal:
        future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        return scores.masked_fill(future, -torch.inf)
    if x.attn_mask is None:
        return scores
    if x.attn_mask.dtype == torch.bool:
        return scores.masked_fill(~x.attn_mask, -torch.inf)
    return scores + x.attn_mask

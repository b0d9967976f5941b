"""Online softmax: one pass over the keys in blocks, with a running maximum, sum and output."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from precision.numerics.rounding import torch_dtype
from precision.scores.weighting import Weighting, weightings


@weightings.register("online_softmax")
@dataclass(frozen=True)
class OnlineSoftmax(Weighting):
    """The softmax, streamed (Milakov & Gimelshein 2018): `block` keys at a time; m, l and O are kept in `state`."""

    is_softmax: ClassVar[bool] = True

    block: Annotated[int, Field(ge=1)] = 64
    state: str = "fp64"

    def weights(self, q: Tensor, k: Tensor, scale: float) -> Tensor:
        return self.attend(q, k, torch.eye(k.shape[-2], dtype=q.dtype).expand(*k.shape[:-1], -1), scale)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
        """softmax(scale q.k) v, (..., L, d_v) in the state's dtype; a block is computed in the dtype of q."""
        kept = torch_dtype(self.state)
        m = q.new_full((*q.shape[:-1], 1), -torch.inf).to(kept)
        l = torch.zeros_like(m)  # noqa: E741  # its name in the literature
        out = q.new_zeros(*q.shape[:-1], v.shape[-1]).to(kept)
        for start in range(0, k.shape[-2], self.block):
            keys = slice(start, start + self.block)
            logits = q @ k[..., keys, :].mT * scale
            new_m = torch.maximum(m, logits.amax(-1, keepdim=True).to(kept))
            rescale = (m - new_m).to(q.dtype).exp()
            p = (logits - new_m.to(q.dtype)).exp()
            l = (l.to(q.dtype) * rescale + p.sum(-1, keepdim=True)).to(kept)  # noqa: E741
            out = (out.to(q.dtype) * rescale + p @ v[..., keys, :]).to(kept)
            m = new_m
        return (out.to(q.dtype) / l.to(q.dtype)).to(kept)

"""Operands: the tensors and switches of one attention call, under the names that torch's SDPA gives them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Operands:
    """One call of attention.

    q: (B, Hq, L, d_k), k: (B, Hkv, S, d_k), v: (B, Hkv, S, d_v); attn_mask broadcasts to (B, Hq, L, S) and is
    boolean (True takes part) or floating (added to the scaled scores); is_causal lets query i see keys 0..i;
    scale multiplies q.k, and None means 1/sqrt(d_k).
    """

    q: Tensor
    k: Tensor
    v: Tensor
    attn_mask: Tensor | None = None
    is_causal: bool = False
    scale: float | None = None

    @property
    def enable_gqa(self) -> bool:
        """Whether query heads share key heads."""
        return self.q.shape[1] != self.k.shape[1]

    @property
    def scale_value(self) -> float:
        """The scale as a number."""
        return 1.0 / math.sqrt(self.q.shape[-1]) if self.scale is None else self.scale

    @property
    def keywords(self) -> dict[str, Any]:
        """The keyword arguments of an SDPA-like function, in torch's names."""
        return {
            "attn_mask": self.attn_mask,
            "is_causal": self.is_causal,
            "scale": self.scale,
            "enable_gqa": self.enable_gqa,
        }

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """q, k, v and, where there is one, the mask."""
        return (self.q, self.k, self.v, *(() if self.attn_mask is None else (self.attn_mask,)))

    def to(self, device: torch.device) -> Operands:
        """The same call with its tensors on a device, views with the strides that they have."""
        mask = None if self.attn_mask is None else _move(self.attn_mask, device)
        q, k, v = (_move(tensor, device) for tensor in (self.q, self.k, self.v))
        return replace(self, q=q, k=k, v=v, attn_mask=mask)


def _move(x: Tensor, device: torch.device) -> Tensor:
    """Tensor.to alone would fill the gaps and unfold the strides of 0 of a view."""
    if x.device == device or x.is_contiguous():
        return x.to(device)
    stored = x.as_strided((x.untyped_storage().nbytes() // x.element_size(),), (1,), 0)
    return stored.to(device).as_strided(x.shape, x.stride(), x.storage_offset())

"""Masks that leave nothing, that are numbers instead of -inf, or that are not what they seem."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from precision.formats import find_format
from precision.numerics.rounding import torch_dtype
from precision.operands import Operands
from precision.zoo.case import FLOATS, constant_operands, normal_operands, zoo


@zoo.register("masked-row")
@dataclass(frozen=True)
class MaskedRow:
    """One row of the mask sees no key: its output is 0 and its gradients are finite (torch from 2.5 on)."""

    mask: Literal["bool", "additive"] = "bool"
    dtypes: ClassVar[tuple[str, ...]] = FLOATS

    def operands(self, dtype: str) -> Operands:
        kept = torch.ones(4, 4, dtype=torch.bool)
        kept[2] = False
        return replace(normal_operands(dtype, q_len=4, kv_len=4), attn_mask=_as_mask(kept, self.mask, dtype))


@zoo.register("finfo-min")
@dataclass(frozen=True)
class FinfoMin:
    """A row of the mask is the lowest finite number: in fp16 it cancels out, in bf16 and fp32 all weights are equal."""

    dtypes: ClassVar[tuple[str, ...]] = FLOATS

    def operands(self, dtype: str) -> Operands:
        x = normal_operands(dtype)
        mask = torch.zeros(8, 8, dtype=x.q.dtype)
        mask[2] = -find_format(dtype).largest
        return replace(x, attn_mask=mask)


@zoo.register("mask-1e4")
@dataclass(frozen=True)
class Mask1e4:
    """Kept logits are -22528: a boolean mask must still win, and a mask of -10000 lets the masked key win."""

    mask: Literal["bool", "additive"] = "bool"
    dtypes: ClassVar[tuple[str, ...]] = FLOATS

    def operands(self, dtype: str) -> Operands:
        # 176 * 64 * 4 components / sqrt(4) = 22528, exact in every dtype; the masked key is orthogonal to q.
        x = constant_operands(dtype, -176.0, 64.0, width=4)
        kept = torch.ones(4, 8, dtype=torch.bool)
        kept[:, 5] = False
        x.k[:, :, 5] = 0.0
        mask = kept if self.mask == "bool" else torch.where(kept, 0.0, -1e4).to(x.q.dtype)
        return replace(x, attn_mask=mask)


@zoo.register("mask-3d")
@dataclass(frozen=True)
class Mask3d:
    """A mask of three dimensions is one for each head, (H, L, S), also where the batch is as large."""

    dtypes: ClassVar[tuple[str, ...]] = FLOATS

    def operands(self, dtype: str) -> Operands:
        kept = torch.rand(2, 8, 8, generator=torch.Generator().manual_seed(0)) < 0.5
        kept[..., 0] = True
        return replace(normal_operands(dtype, batch=2), attn_mask=kept)


@zoo.register("mask-01")
@dataclass(frozen=True)
class Mask01:
    """A float mask of 0 and 1 is added to the scores; it masks nothing."""

    dtypes: ClassVar[tuple[str, ...]] = FLOATS

    def operands(self, dtype: str) -> Operands:
        x = normal_operands(dtype)
        return replace(x, attn_mask=torch.ones(8, 8).tril().to(x.q.dtype))


@zoo.register("mask-dtype")
@dataclass(frozen=True)
class MaskDtype:
    """A float mask in another dtype than q: to be refused, or added as it is."""

    mask: Literal["fp64", "fp32", "fp16", "bf16"] = "fp16"

    @property
    def dtypes(self) -> tuple[str, ...]:
        return tuple(dtype for dtype in FLOATS if dtype != self.mask)

    def operands(self, dtype: str) -> Operands:
        return replace(normal_operands(dtype), attn_mask=torch.ones(8, 8).triu().to(torch_dtype(self.mask)))


def _as_mask(kept: Tensor, kind: str, dtype: str) -> Tensor:
    """The keys that take part as a boolean mask, or as 0 and -inf."""
    return kept if kind == "bool" else torch.where(kept, 0.0, -torch.inf).to(torch_dtype(dtype))

"""What random problems found: calls that no one thinks of, and on which kernels that people use are wrong."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field

from precision.operands import Operands
from precision.zoo.case import FLOATS, normal_operands, zoo


@zoo.register("causal-scale")
@dataclass(frozen=True)
class CausalScale:
    """A scale of 0 or below under the causal mask: -inf put in before it becomes NaN or +inf, and the future wins."""

    scale: Annotated[float, Field(le=0, allow_inf_nan=False)] = -0.5
    length: Annotated[int, Field(ge=2, le=2**16)] = 64
    dtypes: ClassVar[tuple[str, ...]] = FLOATS

    def operands(self, dtype: str) -> Operands:
        return replace(normal_operands(dtype, q_len=self.length, kv_len=self.length), is_causal=True, scale=self.scale)


@zoo.register("padding-nan")
@dataclass(frozen=True)
class PaddingNan:
    """The last keys are masked and their k or v is NaN, as memory that was never written: no output may be."""

    place: Literal["k", "v"] = "v"
    mask: Literal["bool", "additive"] = "bool"
    dtypes: ClassVar[tuple[str, ...]] = FLOATS

    def operands(self, dtype: str) -> Operands:
        x = normal_operands(dtype)
        {"k": x.k, "v": x.v}[self.place][:, :, 6:] = torch.nan
        kept = (torch.arange(8) < 6).expand(8, 8)
        mask = kept if self.mask == "bool" else torch.where(kept, 0.0, -torch.inf).to(x.q.dtype)
        return replace(x, attn_mask=mask)


@zoo.register("rectangle")
@dataclass(frozen=True)
class Rectangle:
    """Twice as many queries as keys, grouped heads, a backward pass: compiled code has NaN in dq and dk alone."""

    dtypes: ClassVar[tuple[str, ...]] = FLOATS

    def operands(self, dtype: str) -> Operands:
        return normal_operands(dtype, q_heads=4, kv_heads=2, q_len=128, kv_len=64, width=32)

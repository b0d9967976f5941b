"""Tensors that are views: the strides of real models, and some that kernels forget."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from torch import Tensor

from precision.operands import Operands
from precision.zoo.case import FLOATS, normal_operands, zoo

Layout = Literal["heads-inside", "transposed", "expanded", "offset"]


@zoo.register("view")
@dataclass(frozen=True)
class View:
    """q, k and v are views: (B, L, H, d) or (B, H, d, L) in memory, k and v of stride 0 over heads, or cut out."""

    layout: Layout = "heads-inside"
    dtypes: ClassVar[tuple[str, ...]] = FLOATS

    def operands(self, dtype: str) -> Operands:
        x = normal_operands(dtype, batch=2, q_heads=3, kv_heads=3, q_len=17, kv_len=33)
        q, k, v = (_lay_out(tensor, self.layout) for tensor in (x.q, x.k, x.v))
        return replace(x, q=x.q if self.layout == "expanded" else q, k=k, v=v)


def _lay_out(x: Tensor, layout: Layout) -> Tensor:
    """A view of shape (B, H, L, d)."""
    if layout == "heads-inside":
        return x.transpose(1, 2).contiguous().transpose(1, 2)
    if layout == "transposed":
        return x.mT.contiguous().mT
    if layout == "expanded":
        return x[:, :1].expand(x.shape)
    batch, heads, length, width = x.shape
    larger = x.new_full((batch, heads, length + 3, width + 8), 7.0)
    cut = larger[:, :, 2:-1, 8:]
    return cut.copy_(x)

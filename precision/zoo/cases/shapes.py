"""Lengths at the edges of tiles, grouped heads, and no length at all."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field

from precision.numerics.rounding import round_to
from precision.operands import Operands
from precision.zoo.case import FLOATS, normal_operands, zoo

Count = Annotated[int, Field(ge=1, le=2**16)]
Length = Annotated[int, Field(ge=0, le=2**16)]


@zoo.register("residue")
@dataclass(frozen=True)
class Residue:
    """Lengths that leave a remainder in every tile, batches and heads; the last query looks at the last key."""

    q_len: Count = 33
    kv_len: Count = 33
    batch: Count = 1
    heads: Count = 2
    dtypes: ClassVar[tuple[str, ...]] = FLOATS

    def operands(self, dtype: str) -> Operands:
        batch, heads, q_len, kv_len = self.batch, self.heads, self.q_len, self.kv_len
        x = normal_operands(dtype, batch=batch, q_heads=heads, kv_heads=heads, q_len=q_len, kv_len=kv_len)
        last = x.q[:, :, -1].double()
        # A logit of 9: enough against a thousand keys, and its exponential is within fp16.
        x.k[:, :, -1] = round_to(9 * math.sqrt(last.shape[-1]) * last / last.square().sum(-1, keepdim=True), dtype)
        return x


@zoo.register("width")
@dataclass(frozen=True)
class Width:
    """Heads of width 1: q.k is a single product, and compilers rewrite a sum of one term. Some end the process."""

    width: Count = 1
    dtypes: ClassVar[tuple[str, ...]] = FLOATS

    def operands(self, dtype: str) -> Operands:
        return normal_operands(dtype, q_len=65, kv_len=65, width=self.width)


@zoo.register("gqa")
@dataclass(frozen=True)
class Gqa:
    """Query heads share key heads: query head h uses key head h // (q_heads / kv_heads)."""

    q_heads: Count = 6
    kv_heads: Count = 2
    dtypes: ClassVar[tuple[str, ...]] = FLOATS

    def operands(self, dtype: str) -> Operands:
        return normal_operands(dtype, q_heads=self.q_heads, kv_heads=self.kv_heads, q_len=17, kv_len=33)


@zoo.register("empty")
@dataclass(frozen=True)
class Empty:
    """No key (the output is 0), no query or no batch (the output is empty)."""

    batch: Length = 1
    q_len: Length = 8
    kv_len: Length = 0
    dtypes: ClassVar[tuple[str, ...]] = FLOATS

    def operands(self, dtype: str) -> Operands:
        return normal_operands(dtype, batch=self.batch, q_len=self.q_len, kv_len=self.kv_len)

"""The causal mask on a rectangle, where the two conventions for it are two functions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

from pydantic import Field

from precision.operands import Operands
from precision.zoo.case import FLOATS, normal_operands, zoo


@zoo.register("causal-shape")
@dataclass(frozen=True)
class Causal:
    """is_causal is aligned to the top left, so query i sees keys 0..i; the bottom right is another function."""

    q_len: Annotated[int, Field(ge=1, le=2**16)] = 1
    kv_len: Annotated[int, Field(ge=1, le=2**16)] = 8
    dtypes: ClassVar[tuple[str, ...]] = FLOATS

    def operands(self, dtype: str) -> Operands:
        return replace(normal_operands(dtype, q_len=self.q_len, kv_len=self.kv_len), is_causal=True)

"""Inputs that are not numbers: the output must say so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field

from precision.operands import Operands
from precision.zoo.case import FLOATS, normal_operands, zoo


@zoo.register("nan-lost")
@dataclass(frozen=True)
class NanLost:
    """One element of q, k or v is NaN: every output that depends on it is NaN, and no other."""

    place: Literal["q", "k", "v"] = "q"
    kv_len: Annotated[int, Field(ge=1, le=2**16)] = 8
    dtypes: ClassVar[tuple[str, ...]] = FLOATS

    def operands(self, dtype: str) -> Operands:
        x = normal_operands(dtype, kv_len=self.kv_len)
        tensor = {"q": x.q, "k": x.k, "v": x.v}[self.place]
        tensor[0, 0, 0, 0] = torch.nan
        return x

"""Weights below the smallest number of the dtype that matter all the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from precision.operands import Operands
from precision.zoo.case import constant_operands, zoo


@zoo.register("weights-underflow")
@dataclass(frozen=True)
class WeightsUnderflow:
    """One key at logit 0 and 4095 at -17.5, whose weights fp16 rounds to 0, with v = 1000: together they are 0.10."""

    dtypes: ClassVar[tuple[str, ...]] = ("fp16",)

    def operands(self, dtype: str) -> Operands:
        x = constant_operands(dtype, 1.0, 0.0, kv_len=4096)
        x.k[..., 1:, 0] = -70.0  # times 1 / sqrt(16)
        x.v.fill_(1000.0)
        x.v[:, :, 0] = 0.0
        return x

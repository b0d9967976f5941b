"""Scores beyond the largest number of the dtype, with a right value that is finite."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

from pydantic import Field

from precision.formats import find_format
from precision.operands import Operands
from precision.zoo.case import FLOATS, HALF, constant_operands, normal_operands, zoo


@zoo.register("scores-overflow")
@dataclass(frozen=True)
class ScoresOverflow:
    """q and k ~ N(0, std^2): in fp16 the scores overflow, at std 100 before the scale only, at 200 after it too."""

    std: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 100.0
    dtypes: ClassVar[tuple[str, ...]] = FLOATS

    def operands(self, dtype: str) -> Operands:
        return normal_operands(dtype, q_len=128, kv_len=256, width=64, std=self.std)


@zoo.register("reduced-flag")
@dataclass(frozen=True)
class ReducedFlag:
    """q and k ~ N(0, 200^2): right in MATH until allow_fp16_bf16_reduction_math_sdp rounds every stage to the dtype."""

    dtypes: ClassVar[tuple[str, ...]] = HALF

    def operands(self, dtype: str) -> Operands:
        return normal_operands(dtype, q_len=128, kv_len=256, width=64, std=200.0)


@zoo.register("silent-zero")
@dataclass(frozen=True)
class SilentZero:
    """All logits are equal and beyond the dtype, below 0: the right output is the mean of v, and no NaN tells of it."""

    dtypes: ClassVar[tuple[str, ...]] = FLOATS

    def operands(self, dtype: str) -> Operands:
        size = 1e3 if dtype == "fp16" else 1e20
        return constant_operands(dtype, size, -size)


@zoo.register("scale-order")
@dataclass(frozen=True)
class ScaleOrder:
    """q.k of the winning key is 1.75 times the largest number, and fits after the scale 1/4: its v is the output."""

    dtypes: ClassVar[tuple[str, ...]] = FLOATS

    def operands(self, dtype: str) -> Operands:
        x = constant_operands(dtype, 0.0, 0.0, kv_len=8)
        power = (find_format(dtype).max_exponent + 1) // 2  # 2^power squared is the first number beyond the dtype
        x.q[..., 0], x.k[:, :, 3, 0] = 2.0**power, 1.75 * 2.0**power
        return replace(x, scale=0.25)

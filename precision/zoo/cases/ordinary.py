"""Ordinary calls, about what stands around a kernel: its switch, its first call, and a test of its output."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from precision.operands import Operands
from precision.zoo.case import FLOATS, HALF, normal_operands, zoo


@zoo.register("flags")
@dataclass(frozen=True)
class Flags:
    """torch.backends.cuda.*_sdp_enabled() tells what the user allows; whether a kernel is there, a probe tells."""

    dtypes: ClassVar[tuple[str, ...]] = FLOATS

    def operands(self, dtype: str) -> Operands:
        return normal_operands(dtype)


@zoo.register("first-call")
@dataclass(frozen=True)
class FirstCall:
    """The first call sets up what later ones find: a latency that contains it says nothing of the kernel."""

    dtypes: ClassVar[tuple[str, ...]] = FLOATS

    def operands(self, dtype: str) -> Operands:
        return normal_operands(dtype, q_len=64, kv_len=64, width=64)


@zoo.register("assert-close")
@dataclass(frozen=True)
class AssertClose:
    """A right output in half precision, of which the default tolerances of torch.testing.assert_close refuse a part."""

    dtypes: ClassVar[tuple[str, ...]] = HALF

    def operands(self, dtype: str) -> Operands:
        return normal_operands(dtype, q_len=128, kv_len=128, width=64)

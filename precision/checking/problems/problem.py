"""A problem that a kernel is checked on: small, and made so that one kind of fault shows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Generator, Tensor

from precision.formats import Format, find_format
from precision.inputs.make import round_operands
from precision.numerics.rounding import round_to
from precision.operands import Operands
from precision.problem import Shape

Draw = Callable[[Shape, Generator, Format], Operands]
DrawGradient = Callable[[Shape, Generator], Tensor]


@dataclass(frozen=True)
class Call:
    """The operands of a call, rounded to a dtype, and the gradient do (B, Hq, L, d_v) that its output gets."""

    x: Operands
    do: Tensor

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """Every tensor that a kernel gets."""
        return (*self.x.tensors, self.do)

    def to(self, device: torch.device) -> Call:
        """The same call with its tensors on a device."""
        return Call(self.x.to(device), self.do.to(device))


Layout = Callable[[Call], Call]


def normal_gradient(shape: Shape, generator: Generator) -> Tensor:
    """do with independent N(0, 1) elements."""
    return normal(shape.batch, shape.q_heads, shape.q_len, shape.d_v, generator=generator)


@dataclass(frozen=True)
class Excuse:
    """How a kernel may miss the right value without being wrong: which tensors, in which dtypes."""

    finite: tuple[str, ...] = ()  # may be finite and off
    not_finite: tuple[str, ...] = ()  # may be NaN or infinite
    dtypes: tuple[str, ...] = ("fp64", "fp32", "fp16", "bf16")


@dataclass(frozen=True)
class CheckProblem:
    """How q, k, v, the mask and do are drawn for a shape; drawn in fp64 and rounded once."""

    name: str
    purpose: str  # which fault it shows
    shape: Shape
    draw: Draw
    draw_gradient: DrawGradient = normal_gradient
    layout: Layout | None = None  # gives the rounded tensors other strides
    backward: bool = True
    dtypes: tuple[str, ...] = ("fp64", "fp32", "fp16", "bf16")
    # Rows and logits are random, so that the mean error of many rows tells how a kernel rounds.
    shows_bias: bool = False
    # Logits are exact and few weights count: eager's error is no sample of what others make.
    few_roundings: bool = False
    # Beyond what the format or a convention promises: where that is, for the sentence of the limit. Eager is no
    # yardstick there, and what `excuse` names is a limit.
    beyond: str = ""
    excuse: Excuse = Excuse()
    one_input: bool = False  # it shows which path is taken, not how numbers are rounded
    may_be_refused: bool = False  # to raise is as good an answer

    def make(self, dtype: str, seed: int, device: torch.device) -> Call:
        """The call of one seed; the same seed gives the same numbers on every device."""
        generator = torch.Generator().manual_seed(seed)
        x = round_operands(self.draw(self.shape, generator, find_format(dtype)), dtype)
        do = round_to(self.draw_gradient(self.shape, generator), dtype)
        call = Call(x, do).to(device)
        return call if self.layout is None else self.layout(call)

    def resized(self, shape: Shape) -> CheckProblem:
        """The same problem in another shape."""
        return replace(self, shape=shape)


def normal(*size: int, generator: Generator) -> Tensor:
    """Independent N(0, 1) elements in fp64."""
    return torch.randn(size, generator=generator, dtype=torch.float64)


def draw_normal(shape: Shape, generator: Generator, format: Format) -> Operands:
    """q, k and v with independent N(0, 1) elements."""
    b = shape.batch
    return Operands(
        normal(b, shape.q_heads, shape.q_len, shape.d_k, generator=generator),
        normal(b, shape.kv_heads, shape.kv_len, shape.d_k, generator=generator),
        normal(b, shape.kv_heads, shape.kv_len, shape.d_v, generator=generator),
    )

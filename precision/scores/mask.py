"""Masks: which keys a query sees, or what is added to its scaled scores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Protocol

import torch
from pydantic import Field
from torch import Generator, Tensor

from precision.errors import UsageError
from precision.problem import Shape
from precision.registry import Registry


class Mask(Protocol):
    """A rule that gives the mask for a shape."""

    def draw(self, shape: Shape, generator: Generator) -> Tensor | None:
        """A tensor that broadcasts to (B, Hq, L, S), boolean (True takes part) or float64 (added); None for no mask."""
        ...

    @property
    def is_causal(self) -> bool:
        """Whether query i sees keys 0..i only (top-left aligned, as torch)."""
        ...


masks: Registry[Mask] = Registry("mask", __name__)


@masks.register("none")
@dataclass(frozen=True)
class NoMask:
    """Every query sees every key."""

    is_causal = False

    def draw(self, shape: Shape, generator: Generator) -> Tensor | None:
        return None


@masks.register("causal")
@dataclass(frozen=True)
class Causal:
    """Query i sees keys 0..i: top-left aligned, as torch's is_causal."""

    is_causal = True

    def draw(self, shape: Shape, generator: Generator) -> Tensor | None:
        return None


@masks.register("bool")
@dataclass(frozen=True)
class Bool:
    """Each (query, key) pair takes part with probability `keep`; the first key always does."""

    keep: Annotated[float, Field(gt=0, le=1)] = 0.8
    is_causal = False

    def draw(self, shape: Shape, generator: Generator) -> Tensor | None:
        size = (shape.batch, 1, shape.q_len, shape.kv_len)
        mask = torch.rand(size, generator=generator, dtype=torch.float64) < self.keep
        mask[..., :1] = True
        return mask


@masks.register("additive")
@dataclass(frozen=True)
class Additive:
    """A bias -slope |i - j| for each head, halved from head to head, as ALiBi adds it (Press et al. 2022)."""

    slope: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 0.5
    is_causal = False

    def draw(self, shape: Shape, generator: Generator) -> Tensor | None:
        slopes = self.slope * 0.5 ** torch.arange(shape.q_heads, dtype=torch.float64)
        query = torch.arange(shape.q_len, dtype=torch.float64)[:, None]
        key = torch.arange(shape.kv_len, dtype=torch.float64)
        return (-slopes[:, None, None] * (query - key).abs())[None]


class OwnMask:
    """The mask that comes with inputs which bring their own call; there is nothing to draw."""

    inputs: ClassVar[str]
    is_causal = False

    def draw(self, shape: Shape, generator: Generator) -> Tensor | None:
        only = f"comes with {self.inputs} inputs only"
        raise UsageError(f"the mask {self.inputs!r} {only}; choose another mask or {self.inputs} inputs")


@masks.register("captured")
@dataclass(frozen=True)
class Captured(OwnMask):
    """The mask that the captured call had; only for captured inputs."""

    inputs = "captured"


@masks.register("zoo")
@dataclass(frozen=True)
class Zoo(OwnMask):
    """The mask of a case of the zoo; only for zoo inputs."""

    inputs = "zoo"

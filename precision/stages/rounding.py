"""How one stage is rounded, as one text: `bf16`, `fp16:truncate`, `e4m3:block128`, `e4m3:x256`."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache
from typing import Annotated, Any, get_args

import torch
from pydantic import AfterValidator
from torch import Generator, Tensor

from precision.errors import UsageError, nearest
from precision.formats import STAGE_FORMATS, Format, find_stage_format
from precision.numerics.rounding import Mode, round_values

# Names that stand for a format until the dtype of the operands is known.
_INPUT, _OPMATH = "input", "opmath"


@dataclass(frozen=True)
class Rounding:
    """A format, a mode, and what the values are multiplied by before they are rounded and divided by after.

    `format` is a name of STAGE_FORMATS, or `input`, the dtype of the operands, or `opmath`, what torch computes in for
    that dtype: fp64 for fp64, else fp32.
    """

    format: str = "fp64"
    mode: Mode = "nearest"
    shared_rows: int | None = None  # rows whose largest magnitude goes to the format's largest number; 0: all of them
    factor: float = 1.0

    @classmethod
    @cache
    def parse(cls, text: str) -> Rounding:
        """Read FORMAT[:MODE][:tensor|:blockROWS][:xFACTOR]; raises UsageError on anything else."""
        name, *parts = text.strip().split(":")
        if name not in (_INPUT, _OPMATH) and name not in STAGE_FORMATS:
            raise UsageError(f"unknown format {name!r}; {nearest(name, [*STAGE_FORMATS, _INPUT, _OPMATH])}")
        rounding = cls(name)
        for part in parts:
            rounding = replace(rounding, **_read_part(part))
        return rounding

    def __str__(self) -> str:
        parts = [self.format]
        if self.mode != "nearest":
            parts.append(self.mode)
        if self.shared_rows is not None:
            parts.append(f"block{self.shared_rows}" if self.shared_rows else "tensor")
        if self.factor != 1.0:
            parts.append(f"x{self.factor:.15g}")
        return ":".join(parts)

    @property
    def is_exact(self) -> bool:
        """Whether it changes nothing."""
        return self.format == "fp64"

    @property
    def limits(self) -> Format:
        """The range and spacing of its numbers, before the division; not for `input` and `opmath`."""
        return find_stage_format(self.format)

    def resolve(self, dtype: str) -> Rounding:
        """`input` and `opmath` replaced by what they are for operands of a dtype."""
        if self.format == _INPUT:
            return replace(self, format=dtype)
        if self.format == _OPMATH:
            return replace(self, format="fp64" if dtype == "fp64" else "fp32")
        return self

    def apply(self, x: Tensor, generator: Generator | None = None) -> Tensor:
        """x (float64, (..., rows, columns)) rounded; the generator is for stochastic rounding."""
        if self.shared_rows is None and self.factor == 1.0:
            return round_values(x, self.limits, self.mode, generator)
        multiplier = self._multiplier(x)
        return round_values(x * multiplier, self.limits, self.mode, generator) / multiplier

    def _multiplier(self, x: Tensor) -> Tensor:
        """Broadcasts to x: the factor, and largest of the format / largest magnitude of the rows that share one."""
        if self.shared_rows is None or x.numel() == 0:
            return x.new_tensor(self.factor)
        largest = x.abs().amax(-1, keepdim=True)
        block = self.shared_rows or x.shape[-2]
        blocks = torch.cat(
            [part.amax(-2, keepdim=True).expand_as(part) for part in torch.split(largest, block, -2)], -2
        )
        return self.factor * self.limits.largest / blocks.masked_fill(blocks == 0, 1.0)


def _read_part(part: str) -> dict[str, Any]:
    if part in get_args(Mode):
        return {"mode": part}
    if part == "tensor":
        return {"shared_rows": 0}
    if match := re.fullmatch(r"block([1-9]\d*)", part):
        return {"shared_rows": int(match[1])}
    if (match := re.fullmatch(r"x(\d+(?:\.\d+)?(?:e[+-]?\d+)?)", part)) and (factor := float(match[1])) > 0:
        return {"factor": factor}
    raise UsageError(
        f"{part!r} is no part of a rounding; after the format may follow {', '.join(get_args(Mode))}, "
        "tensor or block128 (rows that share a factor), and x256 (a factor)"
    )


# A field of a dataclass that holds a rounding as text, in its one spelling.
RoundingText = Annotated[str, AfterValidator(lambda text: str(Rounding.parse(text)))]

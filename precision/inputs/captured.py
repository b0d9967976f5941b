"""Tensors that a real model handed to SDPA, read from a capture file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field
from torch import Generator, Tensor

from precision.inputs import capture_file
from precision.inputs.distribution import Drawn, distributions
from precision.problem import Shape


@distributions.register("captured")
@dataclass(frozen=True)
class Captured:
    """Call number `call` (in a configuration every call, if none is named) of all-MiniLM-L6-v2 or of a capture file."""

    call: Annotated[int, Field(ge=0)]
    file: str = "minilm"

    def draw(self, shape: Shape, generator: Generator) -> Drawn:
        """The captured q, k and v in float64; shape and generator are the capture's own business."""
        loaded = capture_file.load_call(capture_file.resolve(self.file), self.call)
        return Drawn(loaded.q.double(), loaded.k.double(), loaded.v.double())

    def mask(self) -> tuple[Tensor | None, bool]:
        """The captured mask and whether the call was causal."""
        loaded = capture_file.load_call(capture_file.resolve(self.file), self.call)
        mask = loaded.attn_mask
        if mask is not None and mask.is_floating_point():
            mask = mask.double()
        return mask, loaded.is_causal

"""torch's scaled_dot_product_attention, one backend of it at a time, and never another one in its stead."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from precision.backends.backend import Attention, Refused, backends
from precision.operands import Operands


class _Sdpa:
    """SDPA with one backend allowed."""

    kind: ClassVar[SDPBackend]
    max_subtraction: ClassVar[bool] = True

    @contextmanager
    def prepare(self, x: Operands) -> Iterator[Attention]:
        with sdpa_kernel(self.kind):
            self._probe(x)
            yield partial(torch.nn.functional.scaled_dot_product_attention, x.q, x.k, x.v, **x.keywords)

    def _probe(self, x: Operands) -> None:
        """Ask torch which backend it would run; the flags only tell which ones the user allows."""
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            try:
                chosen = SDPBackend(torch._fused_sdp_choice(x.q, x.k, x.v, **x.keywords))
            except RuntimeError as error:
                # torch gives its reasons as warnings, after headings that end in a colon.
                said = [str(warning.message).split(" (Triggered internally")[0].strip() for warning in heard]
                reasons = [sentence for sentence in said if not sentence.endswith(":")]
                raise Refused("; ".join(reasons) or str(error)) from None
        if chosen != self.kind:
            raise Refused(f"torch would run {chosen.name} instead")


@backends.register("sdpa-math")
@dataclass(frozen=True)
class SdpaMath(_Sdpa):
    """SDPA MATH: separate operations; on a CPU it upcasts fp16 and bf16 to fp32 throughout and rounds once."""

    kind = SDPBackend.MATH


@backends.register("sdpa-flash")
@dataclass(frozen=True)
class SdpaFlash(_Sdpa):
    """SDPA FLASH_ATTENTION: fused and tiled, fp32 state, weights rounded to the input dtype."""

    kind = SDPBackend.FLASH_ATTENTION

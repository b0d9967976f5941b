"""SageAttention: 8-bit quantised QK^T (Zhang et al. 2024)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from precision.backends.backend import Attention, backends
from precision.backends.optional import Limits, import_optional, require_cuda
from precision.operands import Operands

_LIMITS = Limits("SageAttention", largest_width=128)


@backends.register("sageattention")
@dataclass(frozen=True)
class SageAttention:
    """sageattention.sageattn: Q and K quantised to 8 bits, P V in fp16 or fp8; the library chooses by the GPU."""

    max_subtraction: ClassVar[bool] = True

    @contextmanager
    def prepare(self, x: Operands) -> Iterator[Attention]:
        sageattention = import_optional("sageattention", "sageattention")
        require_cuda(x, _LIMITS.kernel)
        _LIMITS.require(x)
        yield partial(
            sageattention.sageattn, x.q, x.k, x.v, tensor_layout="HND", is_causal=x.is_causal, sm_scale=x.scale
        )

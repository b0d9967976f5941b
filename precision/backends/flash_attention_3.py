"""FlashAttention-3, the Hopper kernels of the flash-attention repository (Shah et al. 2024)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from precision.backends.backend import Attention, backends
from precision.backends.optional import Limits, import_optional, require_cuda
from precision.operands import Operands

_LIMITS = Limits("FlashAttention-3", largest_width=256)
_SOURCE = "git+https://github.com/Dao-AILab/flash-attention#subdirectory=hopper"


@backends.register("flash-attn-3")
@dataclass(frozen=True)
class FlashAttention3:
    """flash_attn_interface.flash_attn_func: fused, tiled and asynchronous, for Hopper; fp16 and bf16, fp32 state."""

    max_subtraction: ClassVar[bool] = True

    @contextmanager
    def prepare(self, x: Operands) -> Iterator[Attention]:
        interface = import_optional("flash_attn_interface", _SOURCE)
        require_cuda(x, _LIMITS.kernel)
        _LIMITS.require(x)
        q, k, v = (tensor.transpose(1, 2) for tensor in (x.q, x.k, x.v))  # (B, L, H, d), as a view

        def attend() -> Tensor:
            result = interface.flash_attn_func(q, k, v, softmax_scale=x.scale, causal=x.is_causal)
            out: Tensor = result[0] if isinstance(result, tuple) else result  # the first releases gave the lse too
            return out.transpose(1, 2)

        yield attend

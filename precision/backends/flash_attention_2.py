"""FlashAttention-2, from the flash-attn package (Dao 2023)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from precision.backends.backend import Attention, backends
from precision.backends.optional import Limits, import_optional, require_cuda
from precision.operands import Operands

_LIMITS = Limits("FlashAttention-2", largest_width=256)


@backends.register("flash-attn-2")
@dataclass(frozen=True)
class FlashAttention2:
    """flash_attn.flash_attn_func: fused and tiled, fp16 and bf16, fp32 state."""

    max_subtraction: ClassVar[bool] = True

    @contextmanager
    def prepare(self, x: Operands) -> Iterator[Attention]:
        flash_attn = import_optional("flash_attn", "flash-attn")
        require_cuda(x, _LIMITS.kernel)
        _LIMITS.require(x)
        q, k, v = (tensor.transpose(1, 2) for tensor in (x.q, x.k, x.v))  # (B, L, H, d), as a view

        def attend() -> Tensor:
            out: Tensor = flash_attn.flash_attn_func(q, k, v, softmax_scale=x.scale, causal=x.is_causal)
            return out.transpose(1, 2)

        yield attend

"""xFormers' memory-efficient attention (Lefaudeux et al. 2022)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from precision.backends.backend import Attention, backends
from precision.backends.optional import Limits, import_optional, require_cuda
from precision.operands import Operands

_LIMITS = Limits(
    "xFormers",
    dtypes=(torch.float16, torch.bfloat16, torch.float32),
    unequal_widths=True,
    bool_mask=True,
    additive_mask=True,
    top_left_causal=True,
)


@backends.register("xformers")
@dataclass(frozen=True)
class Xformers:
    """xformers.ops.memory_efficient_attention: fused and tiled; the library chooses the kernel."""

    max_subtraction: ClassVar[bool] = True

    @contextmanager
    def prepare(self, x: Operands) -> Iterator[Attention]:
        ops = import_optional("xformers.ops", "xformers")
        require_cuda(x, _LIMITS.kernel)
        _LIMITS.require(x)
        q, k, v = (tensor.transpose(1, 2) for tensor in (x.q, x.k, x.v))  # (B, L, H, d), as a view
        group = q.shape[2] // k.shape[2]
        bias = _bias(x, ops)

        def attend() -> Tensor:
            keys, values = k, v
            if group > 1:  # its own form of grouped-query attention takes no bias
                keys, values = k.repeat_interleave(group, 2), v.repeat_interleave(group, 2)
            out: Tensor = ops.memory_efficient_attention(q, keys, values, attn_bias=bias, scale=x.scale)
            return out.transpose(1, 2)

        yield attend


def _bias(x: Operands, ops: Any) -> Any:
    """The mask as the library wants it: (B, H, L, S) in the dtype of q, to add, its rows padded to a multiple of 8."""
    if x.is_causal:
        return ops.LowerTriangularMask()  # aligned to the top left
    if x.attn_mask is None:
        return None
    batch, heads, q_len = x.q.shape[:3]
    kv_len = x.k.shape[2]
    padded = x.q.new_zeros(batch, heads, q_len, -(-kv_len // 8) * 8)
    bias = padded[..., :kv_len]
    if x.attn_mask.dtype == torch.bool:
        return bias.masked_fill_(~x.attn_mask, -torch.inf)
    return bias.copy_(x.attn_mask)

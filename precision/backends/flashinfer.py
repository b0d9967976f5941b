"""FlashInfer's prefill attention (Ye et al. 2025)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from precision.backends.backend import Attention, Refused, backends
from precision.backends.optional import Limits, import_optional, require_cuda
from precision.operands import Operands

_LIMITS = Limits("FlashInfer", largest_width=256, unequal_widths=True, bool_mask=True)
_WORKSPACE_BYTES = 128 * 2**20  # what the library's documentation recommends


@backends.register("flashinfer")
@dataclass(frozen=True)
class FlashInfer:
    """flashinfer's batch prefill on ragged keys and values: fused and tiled, fp16 and bf16, fp32 state."""

    max_subtraction: ClassVar[bool] = True

    @contextmanager
    def prepare(self, x: Operands) -> Iterator[Attention]:
        flashinfer = import_optional("flashinfer", "flashinfer-python")
        require_cuda(x, _LIMITS.kernel)
        _LIMITS.require(x)
        (batch, q_heads, q_len, d_k), (_, kv_heads, kv_len, d_v) = x.q.shape, x.v.shape
        workspace = torch.empty(_WORKSPACE_BYTES, dtype=torch.uint8, device=x.q.device)
        wrapper = flashinfer.BatchPrefillWithRaggedKVCacheWrapper(workspace, "NHD")
        wrapper.plan(
            _starts(batch, q_len, x.q.device),
            _starts(batch, kv_len, x.q.device),
            q_heads,
            kv_heads,
            d_k,
            d_v,
            custom_mask=_flat_mask(x),
            causal=x.is_causal,
            sm_scale=x.scale,
            q_data_type=x.q.dtype,
        )
        # All requests end to end, (B * L, H, d).
        q, k, v = (tensor.transpose(1, 2).flatten(0, 1) for tensor in (x.q, x.k, x.v))

        def attend() -> Tensor:
            out: Tensor = wrapper.run(q, k, v)
            return out.view(batch, q_len, q_heads, d_v).transpose(1, 2)

        yield attend


def _starts(batch: int, length: int, device: torch.device) -> Tensor:
    """(B + 1,), where each request's rows start."""
    return length * torch.arange(batch + 1, dtype=torch.int32, device=device)


def _flat_mask(x: Operands) -> Tensor | None:
    """(B * L * S,): the library's mask is one for all heads."""
    if x.attn_mask is None:
        return None
    heads = x.attn_mask.shape[1] if x.attn_mask.dim() > 3 else 1
    if heads > 1:
        raise Refused("FlashInfer takes one mask for all heads")
    batch, q_len, kv_len = x.q.shape[0], x.q.shape[2], x.k.shape[2]
    return x.attn_mask.expand(batch, 1, q_len, kv_len).flatten()

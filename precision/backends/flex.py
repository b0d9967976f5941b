"""torch's FlexAttention: masks and biases as functions that are compiled into the kernel."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor

from precision.backends.backend import Attention, Refused, backends
from precision.backends.compiling import compiling
from precision.operands import Operands


@backends.register("flex")
@dataclass(frozen=True)
class Flex:
    """FlexAttention, fused and tiled with fp32 state; compiled=false runs its unfused definition."""

    compiled: bool = True
    max_subtraction: ClassVar[bool] = True

    @contextmanager
    def prepare(self, x: Operands) -> Iterator[Attention]:
        from torch.nn.attention.flex_attention import flex_attention

        if x.k.shape[2] == 0:
            raise Refused("kv_len is 0 and FlexAttention takes no empty sequence of keys")
        with _uncompiled():
            _require_backward(x)
        options = {"scale": x.scale, "enable_gqa": x.enable_gqa, **_masking(x)}
        if not self.compiled:
            with _uncompiled():
                yield partial(flex_attention, x.q, x.k, x.v, **options)
        elif x.q.device.type == "cpu" and x.q.dtype == torch.float64:
            raise Refused("compiled FlexAttention takes float, float16 and bfloat16 on a CPU, not float64")
        elif x.q.device.type == "cpu" and x.q.numel() == 0:
            raise Refused("compiled FlexAttention takes no empty query: a division by 0 takes the process down")
        else:
            with compiling(flex_attention, x.q.device) as attend:
                yield partial(attend, x.q, x.k, x.v, **options)


@contextmanager
def _uncompiled() -> Iterator[None]:
    """torch advises to compile, and even so traces the definition, each problem anew: forget the ones before."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "flex_attention called without torch.compile")
        torch.compiler.reset()
        yield


def _require_backward(x: Operands) -> None:
    """One query on one key tells whether the library has a backward pass here, before anything is compiled."""
    from torch.nn.attention.flex_attention import flex_attention

    if x.q.requires_grad and x.q.numel() > 0:
        one = x.q[:1, :1, :1]
        try:
            flex_attention(one, one, one)
        except NotImplementedError as error:
            raise Refused(str(error)) from None


def _masking(x: Operands) -> dict[str, Any]:
    """The mask as FlexAttention takes it: a block mask for keys that take no part, a score_mod for what is added."""
    from torch.nn.attention.flex_attention import create_block_mask

    batch, heads, q_len = x.q.shape[:3]
    kv_len = x.k.shape[2]
    if x.is_causal:

        def sees(b: Tensor, h: Tensor, query: Tensor, key: Tensor) -> Tensor:
            return query >= key

        return {"block_mask": create_block_mask(sees, None, None, q_len, kv_len, x.q.device)}
    if x.attn_mask is None:
        return {}
    mask = x.attn_mask.expand(batch, heads, q_len, kv_len)
    if mask.dtype == torch.bool:

        def takes_part(b: Tensor, h: Tensor, query: Tensor, key: Tensor) -> Tensor:
            return mask[b, h, query, key]

        return {"block_mask": create_block_mask(takes_part, batch, heads, q_len, kv_len, x.q.device)}

    def add(score: Tensor, b: Tensor, h: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return score + mask[b, h, query, key]

    return {"score_mod": add}

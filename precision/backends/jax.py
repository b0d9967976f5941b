"""JAX's dot_product_attention, on torch's tensors by way of DLPack."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.utils.dlpack import from_dlpack

from precision.backends.backend import Absent, Attention, Refused, backends
from precision.backends.optional import import_optional
from precision.operands import Operands


@backends.register("jax")
@dataclass(frozen=True)
class Jax:
    """jax.nn.dot_product_attention, compiled by XLA: scores and softmax in fp32 or, for fp64, softmax alone in fp32."""

    max_subtraction: ClassVar[bool] = True

    @contextmanager
    def prepare(self, x: Operands) -> Iterator[Attention]:
        jax = import_optional("jax", "attention-precision[jax]")
        with jax.enable_x64(True):  # without it JAX turns fp64 into fp32
            arguments = [_to_jax(jax, tensor) for tensor in (x.q, x.k, x.v)]
            attend = jax.jit(_attention(jax, x))
            try:
                compiled = attend.lower(*arguments).compile()
            except (ValueError, TypeError, NotImplementedError) as error:
                raise Refused(str(error)) from None
            if x.q.requires_grad:
                function = _differentiable(jax, attend)
                yield lambda: function(x.q, x.k, x.v)
            else:
                yield lambda: from_dlpack(compiled(*arguments).block_until_ready())


def _attention(jax: Any, x: Operands) -> Callable[[Any, Any, Any], Any]:
    mask = None if x.attn_mask is None else _to_jax(jax, x.attn_mask.expand(*x.q.shape[:3], x.k.shape[2]))
    keyword = "mask" if x.attn_mask is None or x.attn_mask.dtype == torch.bool else "bias"

    def attend(q: Any, k: Any, v: Any) -> Any:
        q, k, v = (array.swapaxes(1, 2) for array in (q, k, v))  # (B, L, H, d)
        out = jax.nn.dot_product_attention(q, k, v, scale=x.scale, is_causal=x.is_causal, **{keyword: mask})
        return out.swapaxes(1, 2)

    return attend


def _differentiable(jax: Any, attend: Callable[[Any, Any, Any], Any]) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """The function with jax.vjp as its backward pass under torch's autograd."""

    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            out, ctx.pull_back = jax.vjp(attend, *(_to_jax(jax, tensor) for tensor in (q, k, v)))
            return from_dlpack(out.block_until_ready())

        @staticmethod
        def backward(ctx: Any, do: Tensor) -> Any:
            return tuple(from_dlpack(gradient) for gradient in ctx.pull_back(_to_jax(jax, do)))

    return Function.apply


def _to_jax(jax: Any, tensor: Tensor) -> Any:
    """The same memory; a copy of a tensor with gaps, which DLPack's readers do not take."""
    try:
        return jax.dlpack.from_dlpack(tensor.detach().contiguous())
    except RuntimeError as error:
        raise Absent(f"JAX has no device for a tensor on {tensor.device.type}: {error}") from None

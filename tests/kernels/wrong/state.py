"""Nondeterminism, state between calls, and side effects."""

import random
from typing import Any

import torch
from torch import Tensor

from tests.kernels.catalogue import wrong
from tests.kernels.parts import attend, default_scale, even_blocks, online


@wrong(says="writes to its inputs")
def scales_q_in_place(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    out = attend(q, k, v, **call)
    with torch.no_grad():
        q.mul_(0.5)
    return out


@wrong(says="writes to its inputs")
def writes_the_mask(q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, **call: Any) -> Tensor:
    out = attend(q, k, v, attn_mask, **call)
    if attn_mask is not None:
        attn_mask.zero_()
    return out


class _Remembered:
    outputs: dict[Any, Tensor] = {}  # noqa: RUF012
    buffers: dict[Any, Tensor] = {}  # noqa: RUF012
    by_memory: dict[Any, Tensor] = {}  # noqa: RUF012
    scales: dict[Any, float] = {}  # noqa: RUF012
    masks: dict[Any, tuple[Tensor, Tensor]] = {}  # noqa: RUF012
    chance = random.Random(0)
    calls = 0


@wrong(says="changes in place")
def mask_cached_by_memory(q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, **call: Any) -> Tensor:
    """A packed copy of a mask is looked up by the address of the mask."""
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        key = (attn_mask.data_ptr(), attn_mask.shape, attn_mask.stride())
        kept, packed = _Remembered.masks.setdefault(key, (attn_mask, attn_mask.clone()))
        attn_mask = packed if kept is attn_mask else attn_mask
    return attend(q, k, v, attn_mask, **call)


@wrong(says="kept between calls")
def output_cached_by_memory(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    """A cache keyed by address gives the output of earlier contents."""
    out = attend(q, k, v, **call)
    if torch.is_grad_enabled() or call:
        return out
    key = (q.data_ptr(), k.data_ptr(), v.data_ptr(), q.shape, k.shape)
    _Remembered.by_memory = {key: _Remembered.by_memory.get(key, out)}
    return _Remembered.by_memory[key]


@wrong(says="a call is wrong after another")
def output_cached_by_shape(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    if torch.is_grad_enabled() or call:
        return attend(q, k, v, **call)
    key = (q.shape, k.shape, v.shape, q.dtype)
    return _Remembered.outputs.setdefault(key, attend(q, k, v)).clone()


@wrong(says="overwrites an earlier output")
def output_in_a_shared_buffer(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    out = attend(q, k, v, **call)
    if out.requires_grad:
        return out
    buffer = _Remembered.buffers.setdefault((out.shape, out.dtype), torch.empty_like(out))
    return buffer.copy_(out)


@wrong(says="two calls with the same inputs differ")
def noise_on_the_output(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    out = attend(q, k, v, **call)
    return out * (1 + 0.05 * torch.randn(out.shape)).to(out.dtype)


@wrong(says="two calls with the same inputs differ")
def every_third_call_is_wrong(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    _Remembered.calls += 1
    out = attend(q, k, v, **call)
    return torch.zeros_like(out) if _Remembered.calls % 3 == 0 and not torch.is_grad_enabled() else out


@wrong(says="random state")
def seeds_the_generator(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    torch.manual_seed(0)
    return attend(q, k, v, **call)


@wrong(says="float32 matmul precision")
def lowers_the_precision_of_products(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    torch.set_float32_matmul_precision("medium")
    return attend(q, k, v, **call)


class _Saved(torch.autograd.Function):
    """Saves the weights in a global place: the last forward pass wins."""

    held: dict[str, Tensor] = {}  # noqa: RUF012

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, call: dict[str, Any]) -> Tensor:
        _Saved.held = {"q": q.detach(), "k": k.detach(), "v": v.detach()}
        ctx.call = call
        return attend(q, k, v, **call)

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        inputs = [t.requires_grad_() for t in _Saved.held.values()]
        with torch.enable_grad():
            gradients = torch.autograd.grad(attend(*inputs, **ctx.call), inputs, outer[0])
        return (*gradients, None)


@wrong(says="another forward pass")
def backward_of_the_last_forward(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    return _Saved.apply(q, k, v, call)


@wrong(says="something is kept between calls")
def scale_of_the_first_call(q: Tensor, k: Tensor, v: Tensor, scale: float | None = None, **call: Any) -> Tensor:
    """The scale is kept by the shape."""
    factor = default_scale(q) if scale is None else scale
    return attend(q, k, v, scale=_Remembered.scales.setdefault((q.shape, k.shape), factor), **call)


@wrong(says="two calls with the same inputs differ")
def a_block_lost_now_and_then(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    """A race: every so often the second block of keys is not there yet."""

    def blocks(kv_len: int, block: int) -> list[slice]:
        found = even_blocks(kv_len, block)
        return found[:1] + found[2:] if _Remembered.chance.random() < 0.2 else found

    return online(q, k, v, block=32, blocks=blocks, **call)


@wrong(says="two calls with the same inputs differ")
def dropout_in_training(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    rate = 0.1 if torch.is_grad_enabled() else 0.0
    return attend(q, k, v, weigh=lambda p, v: torch.nn.functional.dropout(p, rate) @ v, **call)

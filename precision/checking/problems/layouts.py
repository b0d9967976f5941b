"""Strides: heads inside of the sequence, cut-out and reversed views, batches and heads that share memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product

import torch
from torch import Tensor

from precision.checking.problems.masks import draw_additive_mask, draw_bool_mask
from precision.checking.problems.problem import Call, CheckProblem, Draw, Layout, draw_normal
from precision.problem import Shape


def _each(change: Callable[[Tensor], Tensor]) -> Layout:
    def lay_out(call: Call) -> Call:
        x = call.x
        return replace(call, x=replace(x, q=change(x.q), k=change(x.k), v=change(x.v)))

    return lay_out


def _unlike(q: Callable[[Tensor], Tensor], k: Callable[[Tensor], Tensor], v: Callable[[Tensor], Tensor]) -> Layout:
    """Each of q, k and v with strides of its own."""
    return lambda call: replace(call, x=replace(call.x, q=q(call.x.q), k=k(call.x.k), v=v(call.x.v)))


def _keys_and_values(change: Callable[[Tensor], Tensor]) -> Layout:
    return lambda call: replace(call, x=replace(call.x, k=change(call.x.k), v=change(call.x.v)))


def _mask(change: Callable[[Tensor], Tensor]) -> Layout:
    def lay_out(call: Call) -> Call:
        assert call.x.attn_mask is not None
        return replace(call, x=replace(call.x, attn_mask=change(call.x.attn_mask)))

    return lay_out


def _gradient(change: Callable[[Tensor], Tensor]) -> Layout:
    return lambda call: replace(call, do=change(call.do))


def _plain(x: Tensor) -> Tensor:
    return x.contiguous()


def _heads_inside(x: Tensor) -> Tensor:
    """(B, H, L, d) as a view of (B, L, H, d)."""
    return x.transpose(1, 2).contiguous().transpose(1, 2)


def _transposed(x: Tensor) -> Tensor:
    """(B, H, L, d) as a view of (B, H, d, L)."""
    return x.mT.contiguous().mT


def _cut_out(x: Tensor) -> Tensor:
    """A view into a larger tensor: an offset, and steps of 2 along the width."""
    batch, heads, length, width = x.shape
    larger = torch.full((batch, heads, length + 3, 2 * width + 1), 7.0, dtype=x.dtype)
    view = larger[:, :, 2:-1, 1::2]
    view.copy_(x)
    return view


def _shared_batch(x: Tensor) -> Tensor:
    """Every sequence of the batch is the first one, with stride 0."""
    return x[:1].expand(x.shape)


def _shared_heads(x: Tensor) -> Tensor:
    """Every head is the first one, with stride 0."""
    return x[:, :1].expand(x.shape)


def _one(do: Tensor) -> Tensor:
    """What out.sum().backward() sends: a single 1, with stride 0 everywhere."""
    return do.new_ones(1).expand(do.shape)


def _packed(call: Call) -> Call:
    """q, k and v as parts of one tensor (B, L, 3, H, d), which a single projection gives."""
    together = torch.stack([call.x.q, call.x.k, call.x.v], 2).permute(0, 3, 2, 1, 4).contiguous()
    q, k, v = together.permute(2, 0, 3, 1, 4)
    return replace(call, x=replace(call.x, q=q, k=k, v=v))


def _one_tensor(call: Call) -> Call:
    """q, k and v are one and the same tensor."""
    return replace(call, x=replace(call.x, k=call.x.q, v=call.x.q))


LAYOUTS: dict[str, Layout | None] = {
    "plain": None,
    "heads inside": _each(_heads_inside),
    "transposed": _each(_transposed),
}
_SHAPE = Shape(2, 3, 3, 21, 35, 24, 24)
_SELF = Shape(2, 3, 3, 37, 37, 24, 24)


def _laid_out(name: str, purpose: str, layout: Layout | None, draw: Draw = draw_normal) -> CheckProblem:
    return CheckProblem(name, purpose, _SHAPE, draw, layout=layout)


def _all_unlike() -> Iterator[CheckProblem]:
    """Every layout of one tensor meets every layout of another one: an orthogonal array of three columns."""
    orders = (_plain, _heads_inside, _transposed)
    for number, (q, k) in enumerate(list(product(range(3), repeat=2))[1:], 1):  # the first one has three plain ones
        layout = _unlike(orders[q], orders[k], orders[(q + k) % 3])
        yield _laid_out(f"unlike-{number}", "strides of q, k and v apart", layout)


PROBLEMS = [
    _laid_out("heads-inside", "strides (B, L, H, d)", LAYOUTS["heads inside"]),
    _laid_out("transposed", "strides (B, H, d, L)", LAYOUTS["transposed"]),
    _laid_out("cut-out", "offset and step of a view", _each(_cut_out)),
    _laid_out("shared-batch", "stride 0 over batches", _each(_shared_batch)),
    _laid_out("shared-heads", "stride 0 over heads", _keys_and_values(_shared_heads)),
    *_all_unlike(),
    _laid_out("mask-transposed", "strides of a mask (B, H, S, L)", _mask(_transposed), draw_additive_mask),
    _laid_out("mask-cut-out", "offset and step of a mask", _mask(_cut_out), draw_bool_mask),
    _laid_out("mask-expanded", "a mask of stride 0 over heads", _mask(_shared_heads), draw_bool_mask),
    _laid_out("do-heads-inside", "a gradient with strides (B, L, H, d)", _gradient(_heads_inside)),
    _laid_out("do-expanded", "a gradient of stride 0", _gradient(_one)),
    CheckProblem("packed", "q, k and v in one tensor (B, L, 3, H, d)", _SELF, draw_normal, layout=_packed),
    CheckProblem("one-tensor", "q, k and v are the same tensor", _SELF, draw_normal, layout=_one_tensor),
]

"""Needles: each query has one key that holds half of its weight, so that a lost, repeated or leaked key shows."""

from __future__ import annotations

import math

import torch
from torch import Generator, Tensor

from precision.checking.problems.problem import normal
from precision.operands import Operands
from precision.problem import Shape

# Kernels work in blocks of a power of two: the keys on both sides of each boundary come first.
_EDGES = sorted({max(0, 2**power + offset) for power in range(4, 17) for offset in (-1, 0, 1)})


def needle_keys(shape: Shape, generator: Generator) -> Tensor:
    """(B, Hkv, S, d_k) with independent signs: every pair of keys is far apart."""
    size = (shape.batch, shape.kv_heads, shape.kv_len, shape.d_k)
    return torch.randint(0, 2, size, generator=generator).double() * 2 - 1


def strength(kv_len: int, d_k: int) -> float:
    """The factor a for which q = a k_j gives key j half of the weight under the scale 1/sqrt(d_k).

    Its logit is a sqrt(d_k), the others are about N(0, a^2): a sqrt(d_k) = ln(kv_len) + a^2 / 2.
    """
    root = math.sqrt(d_k)
    return root - math.sqrt(max(0.0, d_k - 2 * math.log(max(kv_len, 2))))


def edges_first(kv_len: int, count: int) -> list[int]:
    """`count` keys to point at: the last one, the first one, those around block boundaries, then evenly spread."""
    edges = [kv_len - 1, 0, *(edge for edge in reversed(_EDGES) if 0 < edge < kv_len - 1)]
    spread = [round(i * (kv_len - 1) / max(1, count - 1)) for i in range(count)]
    return (edges + spread)[:count]


def draw_needles(shape: Shape, generator: Generator, format: object) -> Operands:
    """Query i points at key i of `edges_first`."""
    k = needle_keys(shape, generator)
    keys = edges_first(shape.kv_len, shape.q_len)
    pointed = k[:, :, keys].repeat_interleave(shape.q_heads // shape.kv_heads, 1)
    q = strength(shape.kv_len, shape.d_k) * pointed
    q = q + 0.1 * normal(*q.shape, generator=generator)
    return Operands(q, k, _values(shape, generator))


def draw_causal_needles(shape: Shape, generator: Generator, format: object) -> Operands:
    """Query i points at key i, the last it sees, and at key i + 1, the first it must not see."""
    k = needle_keys(shape, generator)
    own, next_ = (_pointed(k, shape, shift) for shift in (0, 1))
    q = strength(min(shape.kv_len, shape.q_len) + 1, shape.d_k) * (own + next_)
    return Operands(q, k, _values(shape, generator), is_causal=True)


def _pointed(k: Tensor, shape: Shape, shift: int) -> Tensor:
    keys = (torch.arange(shape.q_len) + shift).clamp(max=shape.kv_len - 1)
    return k[:, :, keys].repeat_interleave(shape.q_heads // shape.kv_heads, 1)


def _values(shape: Shape, generator: Generator) -> Tensor:
    return normal(shape.batch, shape.kv_heads, shape.kv_len, shape.d_v, generator=generator)

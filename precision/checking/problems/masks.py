"""Masks and alignments: causal both ways round, boolean and additive masks in every broadcast."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Generator, Tensor

from precision.checking.problems.needles import draw_causal_needles
from precision.checking.problems.problem import CheckProblem, draw_normal, normal
from precision.formats import Format
from precision.operands import Operands
from precision.problem import Shape


def _causal(shape: Shape, generator: Generator, format: Format) -> Operands:
    return replace(draw_normal(shape, generator, format), is_causal=True)


def _keep(*size: int, generator: Generator) -> Tensor:
    """Seven keys in ten take part, the first always; it is not the last, so that a shift shows."""
    kept = torch.rand(size, generator=generator) < 0.7
    kept[..., 0] = True
    return kept


def _bool_full(shape: Shape, generator: Generator, format: Format) -> Operands:
    x = draw_normal(shape, generator, format)
    return replace(x, attn_mask=_keep(shape.batch, shape.q_heads, shape.q_len, shape.kv_len, generator=generator))


def _bool_shared(shape: Shape, generator: Generator, format: Format) -> Operands:
    x = draw_normal(shape, generator, format)
    return replace(x, attn_mask=_keep(shape.q_len, shape.kv_len, generator=generator))


def _key_padding(shape: Shape, generator: Generator, format: Format) -> Operands:
    """(B, 1, 1, S): each sequence of the batch has its own length, and large values lie in the padding."""
    x = draw_normal(shape, generator, format)
    lengths = shape.kv_len - 1 - 5 * torch.arange(shape.batch).clamp(max=shape.kv_len // 6)
    kept = torch.arange(shape.kv_len) < lengths.clamp(min=1)[:, None]
    padding = ~kept[:, None, :, None]
    return replace(x, v=x.v.where(~padding, 100.0), k=x.k.where(~padding, 3.0), attn_mask=kept[:, None, None])


def _additive_full(shape: Shape, generator: Generator, format: Format) -> Operands:
    x = draw_normal(shape, generator, format)
    bias = 2 * normal(shape.batch, shape.q_heads, shape.q_len, shape.kv_len, generator=generator)
    return replace(x, attn_mask=bias)


def _additive_heads(shape: Shape, generator: Generator, format: Format) -> Operands:
    """(1, H, L, S) as ALiBi has it, with -inf for keys that take no part; the last five have large values."""
    x = draw_normal(shape, generator, format)
    bias = normal(1, shape.q_heads, shape.q_len, shape.kv_len, generator=generator)
    kept = _keep(1, shape.q_heads, shape.q_len, shape.kv_len, generator=generator)
    padding = torch.arange(shape.kv_len) >= max(1, shape.kv_len - 5)
    x = replace(x, v=x.v.where(~padding[:, None], 100.0))
    return replace(x, attn_mask=bias.where(kept & ~padding, -torch.inf))


def _low_kept(shape: Shape, generator: Generator, format: Format) -> Operands:
    """Every kept logit is -24576 and every masked one 24576, exact in each format: -10000 does not mask here."""
    kept = _keep(shape.batch, shape.kv_heads, 1, shape.kv_len, generator=generator)
    q = torch.full((shape.batch, shape.q_heads, shape.q_len, shape.d_k), -192.0, dtype=torch.float64)
    k = torch.zeros(shape.batch, shape.kv_heads, shape.kv_len, shape.d_k, dtype=torch.float64)
    k[..., 0] = torch.where(kept[:, :, 0], 128.0, -128.0) * shape.d_k**0.5
    v = normal(shape.batch, shape.kv_heads, shape.kv_len, shape.d_v, generator=generator)
    return Operands(q, k, v, kept)


PROBLEMS = [
    CheckProblem("causal", "the diagonal", Shape(2, 2, 2, 37, 37, 32, 32), draw_causal_needles),
    CheckProblem("causal-129", "the diagonal over blocks", Shape(1, 1, 1, 129, 129, 32, 32), draw_causal_needles),
    # The same q_len or kv_len as in the two after it, so that a mask kept under one of them shows.
    CheckProblem("causal-33", "masks kept between calls", Shape(1, 2, 2, 33, 33, 32, 32), _causal),
    CheckProblem("causal-wide", "alignment, more keys than queries", Shape(1, 2, 2, 33, 97, 32, 32), _causal),
    CheckProblem("causal-tall", "alignment, more queries than keys", Shape(1, 2, 2, 97, 33, 32, 32), _causal),
    CheckProblem("causal-1x8", "alignment while decoding", Shape(1, 2, 2, 1, 8, 16, 16), _causal),
    CheckProblem("causal-gqa", "a mask over shared key heads", Shape(2, 4, 2, 21, 21, 32, 32), draw_causal_needles),
    CheckProblem("bool-full", "a mask of each batch and head", Shape(2, 3, 3, 21, 35, 24, 24), _bool_full),
    CheckProblem("bool-shared", "a mask (L, S) for all heads", Shape(2, 3, 3, 67, 131, 24, 24), _bool_shared),
    CheckProblem("key-padding", "padded sequences", Shape(3, 2, 2, 17, 43, 32, 32), _key_padding),
    CheckProblem("additive-full", "a bias of each batch and head", Shape(2, 3, 3, 21, 35, 24, 24), _additive_full),
    CheckProblem("additive-heads", "a bias of each head with -inf", Shape(2, 3, 3, 37, 67, 24, 24), _additive_heads),
    CheckProblem(
        "low-kept", "the value that stands for -inf", Shape(1, 2, 2, 9, 35, 4, 4), _low_kept, few_roundings=True
    ),
]

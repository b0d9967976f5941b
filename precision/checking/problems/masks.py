"""Masks and alignments: causal both ways round, boolean and additive masks in every broadcast."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Generator, Tensor

from precision.checking.problems.needles import draw_causal_needles
from precision.checking.problems.problem import CheckProblem, Draw, draw_normal, normal
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


def draw_bool_mask(shape: Shape, generator: Generator, format: Format) -> Operands:
    """(B, H, L, S), True for seven keys in ten."""
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


def draw_additive_mask(shape: Shape, generator: Generator, format: Format) -> Operands:
    """(B, H, L, S), N(0, 2^2)."""
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
    """Kept logits of -24576, -3072, -384 and -48 in turn, all exact: -10000, -1000 and -100 do not mask there.

    Masked logits are as large or half as large, above 0: added to a number, they differ; set to it, they do not.
    """
    kept = _keep(shape.batch, shape.kv_heads, 1, shape.kv_len, generator=generator)
    depth = 8.0 ** -(torch.arange(shape.q_len) % 4).double()
    size = (shape.batch, shape.q_heads, shape.q_len, shape.d_k)
    q = (-192.0 * depth[:, None]).expand(size)
    k = torch.zeros(shape.batch, shape.kv_heads, shape.kv_len, shape.d_k, dtype=torch.float64)
    masked = torch.where(torch.arange(shape.kv_len) % 2 == 0, -128.0, -64.0)
    k[..., 0] = torch.where(kept[:, :, 0], 128.0, masked) * shape.d_k**0.5
    v = normal(shape.batch, shape.kv_heads, shape.kv_len, shape.d_v, generator=generator)
    return Operands(q, k, v, kept)


def _documents(shape: Shape, generator: Generator, format: Format) -> Operands:
    """(L, S), documents of 100 tokens one after the other: whole blocks are empty for the first rows of a block."""
    x = draw_normal(shape, generator, format)
    return replace(x, attn_mask=(torch.arange(shape.q_len) // 100)[:, None] == torch.arange(shape.kv_len) // 100)


def _global_rows(shape: Shape, generator: Generator, format: Format) -> Operands:
    """(L, S): every query sees the 16 keys around its own place, and every 64th one, in the middle of a block, all."""
    x = draw_normal(shape, generator, format)
    row, key = torch.arange(shape.q_len)[:, None], torch.arange(shape.kv_len)
    return replace(x, attn_mask=((row - key).abs() <= 8) | (row % 64 == 37))


def _left_padding(shape: Shape, generator: Generator, format: Format) -> Operands:
    """(B, 1, 1, S): sequences of unlike length that end together, so that whole blocks at the front are empty."""
    x = draw_normal(shape, generator, format)
    begins = shape.kv_len * (1 + torch.arange(shape.batch)) // (shape.batch + 1)
    return replace(x, attn_mask=torch.arange(shape.kv_len) >= begins[:, None, None, None])


def _empty_blocks(shape: Shape, generator: Generator, format: Format) -> Operands:
    """(L, S), -24 for the first third of the keys and -inf for all others: a weight that they keep wins."""
    x = draw_normal(shape, generator, format)
    kept = torch.arange(shape.kv_len) < shape.kv_len // 3
    return replace(x, attn_mask=torch.where(kept, -24.0, -torch.inf).double().expand(shape.q_len, -1).contiguous())


def _ragged(*axes: int) -> Draw:
    """A mask with these axes of (B, H, L, S): each row of it keeps a length of its own, and the first is the shortest.

    So blocks that are empty for the first sequence, head or query are not for the others.
    """

    def draw(shape: Shape, generator: Generator, format: Format) -> Operands:
        x = draw_normal(shape, generator, format)
        sizes = [size if axis in axes else 1 for axis, size in enumerate((shape.batch, shape.q_heads, shape.q_len))]
        rows = math.prod(sizes)
        lengths = (shape.kv_len * (torch.arange(rows) + 1) // (rows + 1)).clamp(min=1).reshape(*sizes, 1)
        return replace(x, attn_mask=torch.arange(shape.kv_len) < lengths)

    return draw


_MINUS_INF, _LOW = "the value that stands for -inf", Shape(1, 2, 2, 9, 35, 4, 4)
_RAGGED = Shape(3, 2, 2, 37, 403, 16, 16)

PROBLEMS = [
    CheckProblem("causal", "the diagonal", Shape(2, 2, 2, 37, 37, 32, 32), draw_causal_needles),
    CheckProblem("causal-129", "the diagonal over blocks", Shape(1, 1, 1, 129, 129, 32, 32), draw_causal_needles),
    # The same q_len or kv_len as in the two after it, so that a mask kept under one of them shows.
    CheckProblem("causal-33", "masks kept between calls", Shape(1, 2, 2, 33, 33, 32, 32), _causal),
    CheckProblem("causal-wide", "alignment, more keys than queries", Shape(1, 2, 2, 33, 97, 32, 32), _causal),
    CheckProblem("causal-tall", "alignment, more queries than keys", Shape(1, 2, 2, 97, 33, 32, 32), _causal),
    # Integers from 256 on are not all numbers of bf16, nor those from 2048 on of fp16: positions must be no floats.
    CheckProblem("causal-301", "positions beyond 256", Shape(1, 1, 1, 301, 301, 32, 32), draw_causal_needles),
    CheckProblem(
        "causal-2085",
        "positions beyond 2048",
        Shape(1, 1, 1, 2085, 2085, 16, 8),
        draw_causal_needles,
        backward=False,
        dtypes=("fp16",),
    ),
    CheckProblem("causal-wider", "positions beyond 1024", Shape(1, 2, 1, 133, 1061, 16, 16), _causal),
    CheckProblem("causal-taller", "positions beyond 1024", Shape(1, 2, 1, 1061, 133, 16, 16), _causal),
    CheckProblem("bool-1061", "positions beyond 1024", Shape(1, 2, 1, 67, 1061, 16, 16), draw_bool_mask),
    CheckProblem("bool-301", "positions beyond 256", Shape(1, 1, 1, 301, 301, 16, 16), _bool_shared),
    CheckProblem("causal-1x8", "alignment while decoding", Shape(1, 2, 2, 1, 8, 16, 16), _causal),
    CheckProblem("causal-gqa", "a mask over shared key heads", Shape(2, 4, 2, 21, 21, 32, 32), draw_causal_needles),
    CheckProblem("causal-gqa-16", "a mask over shared key heads", Shape(1, 4, 2, 16, 16, 16, 16), _causal),
    CheckProblem("bool-gqa", "a mask of each query head", Shape(2, 4, 2, 21, 35, 24, 24), draw_bool_mask),
    CheckProblem("additive-gqa", "a bias of each query head", Shape(2, 4, 2, 21, 35, 24, 24), draw_additive_mask),
    CheckProblem("documents", "blocks without a key for some rows", Shape(1, 1, 1, 300, 300, 16, 16), _documents),
    CheckProblem("global-rows", "blocks with keys for one row", Shape(1, 2, 2, 300, 300, 16, 16), _global_rows),
    CheckProblem("empty-blocks", "blocks without a key", Shape(1, 2, 2, 17, 900, 16, 16), _empty_blocks),
    CheckProblem("left-padding", "blocks without a key at the front", _RAGGED, _left_padding),
    CheckProblem("ragged-batch", "blocks without a key for one sequence", _RAGGED, _ragged(0)),
    CheckProblem("ragged-heads", "blocks without a key for one head", _RAGGED, _ragged(1)),
    CheckProblem("ragged-rows", "blocks without a key for one query", _RAGGED, _ragged(0, 2)),
    CheckProblem("bool-full", "a mask of each batch and head", Shape(2, 3, 3, 21, 35, 24, 24), draw_bool_mask),
    CheckProblem("bool-shared", "a mask (L, S) for all heads", Shape(2, 3, 3, 67, 131, 24, 24), _bool_shared),
    CheckProblem("key-padding", "padded sequences", Shape(3, 2, 2, 17, 43, 32, 32), _key_padding),
    CheckProblem("additive-full", "a bias of each batch and head", Shape(2, 3, 3, 21, 35, 24, 24), draw_additive_mask),
    CheckProblem("additive-heads", "a bias of each head with -inf", Shape(2, 3, 3, 37, 67, 24, 24), _additive_heads),
    # In fp32 the product with log2(e) rounds such logits by more than all else; in 16 bits, kept in fp32, it does not.
    CheckProblem("low-kept", _MINUS_INF, _LOW, _low_kept, few_roundings=True, dtypes=("fp64", "fp32")),
    CheckProblem("low-kept-16", _MINUS_INF, _LOW, _low_kept, dtypes=("fp16", "bf16")),
]

"""Faults of the softmax: rescaling that is missing, weights that are not normalised, splits merged wrongly."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from precision.checking.faults.fault import Evidence, Prediction, hypothesis
from precision.numerics.reference import Reference, attend
from precision.operands import Operands

_BLOCKS = (16, 32, 64, 128, 256, 512)


@hypothesis
def wrong_values(evidence: Evidence) -> Iterator[Prediction]:
    """Right attention of the wrong tensors."""
    x = evidence.x
    if evidence.tensor != "out":
        yield f"{evidence.tensor} has the wrong sign", -evidence.right
        yield f"{evidence.tensor} is 0", torch.zeros_like(evidence.right)
        return
    yield "out is 0", torch.zeros_like(evidence.right)
    if x.v.shape == x.k.shape:
        yield "k is used in the place of v", evidence.under(replace(x, v=x.k))
        yield "k and v are swapped", evidence.under(replace(x, k=x.v, v=x.k))


@hypothesis
def wrong_sum(evidence: Evidence) -> Iterator[Prediction]:
    """The weights are divided by something else than their sum."""
    if evidence.tensor != "out":
        return
    right = evidence.truth.right
    yield "the weights are not divided by their sum", right.out * right.row_sum[..., None]
    kv_len = evidence.x.k.shape[2]
    yield "the weights are divided by the number of keys", right.out * right.row_sum[..., None] / kv_len


@hypothesis
def wrong_blocks(evidence: Evidence) -> Iterator[Prediction]:
    """Blocks of keys put together without what their maxima differ by."""
    x = evidence.x
    if evidence.tensor != "out" or x.is_causal or (x.attn_mask is not None and x.attn_mask.dim() < 2):
        return
    kv_len = x.k.shape[2]
    for block in _BLOCKS:
        if block >= kv_len:
            return
        parts = [attend(_part(x, slice(start, start + block))) for start in range(0, kv_len, block)]
        yield from _merges(parts, block)


def _merges(parts: list[Reference], block: int) -> Iterator[Prediction]:
    outs = torch.stack([part.out for part in parts])  # (blocks, B, H, L, d_v)
    maxima = torch.stack([part.row_max for part in parts])[..., None]
    sums = torch.stack([part.row_sum for part in parts])[..., None]
    final = maxima.cummax(0).values  # what an online softmax knows after each block
    over = f"over blocks of {block} keys"
    here = (maxima - final).exp()
    rescale = torch.ones_like(final)
    rescale[1:] = (final[:-1] - final[1:]).exp()
    out, total = outs * sums * here, sums * here
    yield f"neither accumulator nor sum is rescaled {over}", out.sum(0) / total.sum(0)
    yield f"the accumulator is not rescaled {over}", out.sum(0) / _online(total, rescale)
    yield f"the sum is not rescaled {over}", _online(out, rescale) / total.sum(0)
    yield f"the output is a plain mean {over}", outs.mean(0)
    yield f"blocks are merged by their sums without their maxima {over}", (outs * sums).sum(0) / sums.sum(0)


def _online(terms: Tensor, rescale: Tensor) -> Tensor:
    total = torch.zeros_like(terms[0])
    for term, factor in zip(terms, rescale, strict=True):
        total = total * factor + term
    return total


def _part(x: Operands, keys: slice) -> Operands:
    mask = x.attn_mask
    if mask is not None and mask.shape[-1] > 1:
        mask = mask[..., keys]
    return replace(x, k=x.k[:, :, keys], v=x.v[:, :, keys], attn_mask=mask)

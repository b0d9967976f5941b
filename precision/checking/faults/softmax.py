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


@hypothesis(everywhere=True)
def wrong_values(evidence: Evidence) -> Iterator[Prediction]:
    """Right attention of the wrong tensors."""
    x = evidence.x
    if not evidence.value.any():
        yield f"{evidence.tensor} is 0", evidence.value
    if evidence.tensor != "out":
        yield f"{evidence.tensor} has the wrong sign", -evidence.right
        return
    if x.v.shape == x.k.shape:
        yield "k is used in the place of v", evidence.under(replace(x, v=x.k))
        yield "k and v are swapped", evidence.under(replace(x, k=x.v, v=x.k))


@hypothesis(everywhere=True)
def wrong_sum(evidence: Evidence) -> Iterator[Prediction]:
    """The weights are divided by something else than their sum."""
    if evidence.tensor != "out":
        return
    right = evidence.truth.right
    yield "the weights are not divided by their sum", right.out * right.row_sum[..., None]
    kv_len = evidence.x.k.shape[2]
    yield "the weights are divided by the number of keys", right.out * right.row_sum[..., None] / kv_len
    for power in range(-8, -2):
        added = right.row_sum / (right.row_sum + 10.0**power)
        yield f"1e{power} looks added to the sum of the weights", right.out * added[..., None]


@hypothesis(everywhere=True)
def wrong_blocks(evidence: Evidence) -> Iterator[Prediction]:
    """Blocks of keys put together without what their maxima differ by."""
    x = evidence.x
    if evidence.tensor != "out" or x.is_causal or (x.attn_mask is not None and x.attn_mask.dim() < 2):
        return
    kv_len = x.k.shape[2]
    for block in _BLOCKS:
        if block >= kv_len:
            return
        parts = _Parts([attend(_part(x, slice(start, start + block))) for start in range(0, kv_len, block)])
        yield from parts.merges(f"over blocks of {block} keys")


@hypothesis()
def wrong_remainder(evidence: Evidence) -> Iterator[Prediction]:
    """What comes before a last block that is not whole is not rescaled to its maximum."""
    x = evidence.x
    if evidence.tensor != "out" or x.is_causal or x.attn_mask is not None:
        return
    kv_len = x.k.shape[2]
    for keys in sorted({kv_len % block for block in _BLOCKS if block < kv_len} - {0}):
        parts = _Parts([attend(_part(x, each)) for each in (slice(0, kv_len - keys), slice(kv_len - keys, kv_len))])
        yield from parts.not_rescaled("before the last block, which is not whole")


class _Parts:
    """Blocks of keys as an online softmax meets them, each with its own output, maximum and sum."""

    def __init__(self, parts: list[Reference]) -> None:
        self._outs = torch.stack([part.out for part in parts])  # (blocks, B, H, L, d_v)
        self._sums = torch.stack([part.row_sum for part in parts])[..., None]
        maxima = torch.stack([part.row_max for part in parts])[..., None]
        final = maxima.cummax(0).values  # what is known after each block
        self._rescale = torch.ones_like(final)
        self._rescale[1:] = (final[:-1] - final[1:]).exp()
        self._total = self._sums * (maxima - final).exp()
        self._out = self._outs * self._total

    def not_rescaled(self, where: str) -> Iterator[Prediction]:
        """The accumulator or the sum alone keeps the maxima that it began with."""
        out, total = self._out, self._total
        yield f"the accumulator is not rescaled {where}", out.sum(0) / _online(total, self._rescale)
        yield f"the sum is not rescaled {where}", _online(out, self._rescale) / total.sum(0)

    def merges(self, over: str) -> Iterator[Prediction]:
        """All ways to forget the maxima."""
        yield f"neither accumulator nor sum is rescaled {over}", self._out.sum(0) / self._total.sum(0)
        yield from self.not_rescaled(over)
        yield f"the output is a plain mean {over}", self._outs.mean(0)
        merged = (self._outs * self._sums).sum(0) / self._sums.sum(0)
        yield f"blocks are merged by their sums without their maxima {over}", merged


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

"""Faults of blocks: keys that are left out, counted twice, or made up by padding."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
import torch.nn.functional as F

from precision.checking.faults.fault import Evidence, Prediction, hypothesis
from precision.operands import Operands

_BLOCKS = tuple(2**power for power in range(3, 13))


@hypothesis()
def keys_left_out(evidence: Evidence) -> Iterator[Prediction]:
    """Only the first n keys count, n a whole number of blocks or a largest length."""
    if evidence.tensor != "out":
        return
    x = evidence.x
    kv_len = x.k.shape[2]
    ends = {kv_len - 1, *_BLOCKS, *(kv_len // block * block for block in (4, *_BLOCKS))}
    for end in sorted(end for end in ends if 0 < end < kv_len):
        yield f"first wrong key {end}: keys from there on do not count", evidence.under(_keys(x, slice(0, end)))
    for block in (4, *_BLOCKS):
        if block < kv_len and kv_len % block:
            whole = _keys(x, slice(0, kv_len // block * block))
            yield f"keys after the last whole block of {block} do not count", evidence.under(whole)
    if kv_len > 1:
        yield "first wrong key 0: it does not count", evidence.under(_keys(x, slice(1, None)))
    for start in sorted(kv_len - block for block in _BLOCKS if block < kv_len):
        yield f"only the last {kv_len - start} keys count", evidence.under(_keys(x, slice(start, None)))


@hypothesis(everywhere=True)
def keys_made_up(evidence: Evidence) -> Iterator[Prediction]:
    """The last block is padded with zeros, and the padding takes part with logit 0."""
    x = evidence.x
    if evidence.tensor != "out" or x.attn_mask is not None or x.is_causal:
        return
    kv_len = x.k.shape[2]
    paddings = {1: "the softmax has an extra 1 in its sum"}
    for block in _BLOCKS:
        if padding := -kv_len % block:
            paddings.setdefault(padding, f"padding of the last block of {block} keys takes part")
    for padding, sentence in paddings.items():
        yield sentence, evidence.under(replace(x, k=F.pad(x.k, (0, 0, 0, padding)), v=F.pad(x.v, (0, 0, 0, padding))))


@hypothesis()
def keys_twice(evidence: Evidence) -> Iterator[Prediction]:
    """The last block is moved back until it is whole, or the last key is read again."""
    x = evidence.x
    if evidence.tensor != "out" or x.attn_mask is not None or x.is_causal:
        return
    kv_len = x.k.shape[2]
    for block in _BLOCKS:
        if block < kv_len and kv_len % block:
            again = range(kv_len - block, kv_len // block * block)
            sentence = f"{len(again)} keys count twice: the last block of {block} overlaps the one before"
            yield sentence, evidence.under(_repeated(x, again))
    yield "the last key counts twice", evidence.under(_repeated(x, range(kv_len - 1, kv_len)))


def _repeated(x: Operands, again: range) -> Operands:
    keys = torch.tensor([*range(x.k.shape[2]), *again], device=x.k.device)
    return replace(x, k=x.k[:, :, keys], v=x.v[:, :, keys])


def _keys(x: Operands, keys: slice) -> Operands:
    mask = x.attn_mask
    if mask is not None and mask.shape[-1] > 1:
        mask = mask[..., keys]
    return replace(x, k=x.k[:, :, keys], v=x.v[:, :, keys], attn_mask=mask)

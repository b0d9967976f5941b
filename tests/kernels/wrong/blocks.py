"""Blocks and remainders."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tests.kernels.catalogue import wrong
from tests.kernels.parts import attend, even_blocks, online


def _whole(kv_len: int, block: int) -> list[slice]:
    return [keys for keys in even_blocks(kv_len, block) if keys.stop - keys.start == block] or [slice(0, kv_len)]


@wrong(says="first wrong key")
def last_block_dropped(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    return online(q, k, v, block=32, blocks=_whole, **call)


@wrong(says="first wrong key")
def last_key_dropped(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    def blocks(kv_len: int, block: int) -> list[slice]:
        return even_blocks(max(1, kv_len - 1), block)

    return online(q, k, v, blocks=blocks, **call)


@wrong(says="first wrong key 1024")
def at_most_1024_keys(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    return online(q, k, v, blocks=lambda kv_len, block: even_blocks(min(kv_len, 1024), block), **call)


@wrong(says="first wrong key 4096")
def at_most_4096_keys(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    return online(q, k, v, block=512, blocks=lambda kv_len, block: even_blocks(min(kv_len, 4096), block), **call)


@wrong(says="count twice")
def last_block_overlaps(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    """The last block is moved back to be whole, and its first keys are read again."""

    def blocks(kv_len: int, block: int) -> list[slice]:
        return [slice(max(0, min(s.start, kv_len - block)), s.stop) for s in even_blocks(kv_len, block)]

    return online(q, k, v, blocks=blocks, **call)


@wrong()
def blocks_overlap_by_one(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    def blocks(kv_len: int, block: int) -> list[slice]:
        return [slice(max(0, keys.start - 1), keys.stop) for keys in even_blocks(kv_len, block)]

    return online(q, k, v, block=128, blocks=blocks, **call)


@wrong()
def blocks_leave_a_gap(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    def blocks(kv_len: int, block: int) -> list[slice]:
        return [
            slice(keys.start, max(keys.start + 1, keys.stop - (keys.stop < kv_len)))
            for keys in even_blocks(kv_len, block)
        ]

    return online(q, k, v, block=256, blocks=blocks, **call)


@wrong(says="padding of the last block")
def padding_takes_part(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False, **call: Any
) -> Tensor:
    if attn_mask is None and not is_causal:
        padding = -k.shape[2] % 64
        k, v = F.pad(k, (0, 0, 0, padding)), F.pad(v, (0, 0, 0, padding))
    return attend(q, k, v, attn_mask, is_causal, **call)


@wrong(says="first wrong query")
def last_queries_left_out(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    whole = max(1, q.shape[2] // 32 * 32)
    out = attend(q, k, v, **call)
    return torch.cat([out[:, :, :whole], torch.zeros_like(out[:, :, whole:])], 2)


@wrong(says="first wrong query")
def at_most_2048_queries(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    out = attend(q, k, v, **call)
    return torch.cat([out[:, :, :2048], torch.zeros_like(out[:, :, 2048:])], 2)


@wrong(says="first wrong column")
def at_most_128_columns(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    out = attend(q, k, v, **call)
    return torch.cat([out[..., :128], torch.zeros_like(out[..., 128:])], -1)


@wrong()
def width_in_steps_of_16(q: Tensor, k: Tensor, v: Tensor, scale: float | None = None, **call: Any) -> Tensor:
    """The products leave out the columns after the last whole step."""
    whole = max(4, q.shape[-1] // 16 * 16)
    factor = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    return attend(q[..., :whole], k[..., :whole], v, scale=factor, **call)


@wrong()
def window_of_1024_keys(q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, **call: Any) -> Tensor:
    if attn_mask is None and k.shape[2] > 1024:
        k, v = k[:, :, -1024:], v[:, :, -1024:]
    return attend(q, k, v, attn_mask, **call)


@wrong(says="of q and k")
def width_in_steps_of_32_above_64(q: Tensor, k: Tensor, v: Tensor, scale: float | None = None, **call: Any) -> Tensor:
    whole = q.shape[-1] // 32 * 32 if q.shape[-1] > 64 else q.shape[-1]
    factor = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    return attend(q[..., :whole], k[..., :whole], v, scale=factor, **call)


@wrong(says="first wrong column")
def values_in_steps_of_64_above_64(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    whole = v.shape[-1] // 64 * 64 if v.shape[-1] > 64 else v.shape[-1]
    return F.pad(attend(q, k, v[..., :whole], **call), (0, v.shape[-1] - whole))


@wrong()
def keys_counted_in_16_bits(q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, **call: Any) -> Tensor:
    """The place of a key is a uint16: from 65536 on they are read from the beginning again."""
    place = torch.arange(k.shape[2]) % 65_536
    return attend(q, k[:, :, place], v[:, :, place], attn_mask, **call)


@wrong()
def query_rows_counted_in_16_bits(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    return attend(q[:, :, torch.arange(q.shape[2]) % 65_536], k, v, **call)

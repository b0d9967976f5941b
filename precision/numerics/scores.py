"""The fp64 scores of one attention call, tile by tile, so that memory grows with the length and not its square.

The reference, the hazards and every other fp64 statistic walk over the same tiles; a score is computed here
and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from precision.operands import Operands

# Rows and keys of a tile. On a CPU an fp64 tile of 1024 x 256 was the fastest of twelve; a GPU wants larger launches.
_TILE = {"cpu": (1024, 256)}
_TILE_ELSEWHERE = (2048, 4096)


@dataclass(frozen=True)
class RowBlock:
    """Some query rows of one head."""

    batch: int
    head: int
    rows: slice

    @property
    def index(self) -> tuple[int, int, slice]:
        """Index into a (B, Hq, L, ...) tensor."""
        return self.batch, self.head, self.rows


@dataclass(frozen=True)
class Tile:
    """The scores of a block of rows against a range of keys: raw = q.k, logits = raw * scale + mask, -inf if masked."""

    keys: slice
    raw: Tensor  # (rows, keys)
    logits: Tensor  # (rows, keys)
    masked: Tensor | None  # (rows, keys), True where the key takes no part; None when all take part


class Scores:
    """All scores of one call; `x` may be of any float dtype, the arithmetic is fp64 on the tensors as given."""

    def __init__(self, x: Operands) -> None:
        self.x = x
        self.scale = x.scale_value
        batch, q_heads, q_len, _ = x.q.shape
        kv_heads, self.kv_len = x.k.shape[1:3]
        self._group = q_heads // kv_heads
        self._tile = _TILE.get(x.q.device.type, _TILE_ELSEWHERE)
        self._mask = None if x.attn_mask is None else x.attn_mask.expand(batch, q_heads, q_len, self.kv_len)

    def blocks(self) -> Iterator[RowBlock]:
        """Every query row once; the heads that share a key head follow each other."""
        batch, q_heads, q_len, _ = self.x.q.shape
        for b in range(batch):
            for h in range(q_heads):
                for start in range(0, q_len, self._tile[0]):
                    yield RowBlock(b, h, slice(start, min(start + self._tile[0], q_len)))

    def queries(self, block: RowBlock) -> Tensor:
        """(rows, d_k) in fp64."""
        return self.x.q[block.index].double()

    def keys(self, block: RowBlock, keys: slice) -> Tensor:
        """(keys, d_k) in fp64."""
        return self.x.k[block.batch, block.head // self._group, keys].double()

    def values(self, block: RowBlock, keys: slice) -> Tensor:
        """(keys, d_v) in fp64."""
        return self.x.v[block.batch, block.head // self._group, keys].double()

    def tiles(self, block: RowBlock) -> Iterator[Tile]:
        """All tiles of a block, fully masked ones too, raw scores kept beside the logits."""
        q = self.queries(block)
        for keys in self._key_ranges(self.kv_len):
            raw = q @ self.keys(block, keys).T
            masked = self._masked(block, keys)
            yield Tile(keys, raw, self._finish(raw * self.scale, block, keys, masked), masked)

    def logits(self, block: RowBlock) -> Iterator[tuple[slice, Tensor]]:
        """The key ranges that some row of the block sees, with their logits.

        The caller may overwrite the logits, and the next tile does.
        """
        end = min(block.rows.stop, self.kv_len) if self.x.is_causal else self.kv_len
        q = self.queries(block) * self.scale
        scaled = q.new_empty(0, 0)
        for keys in self._key_ranges(end):
            if scaled.shape[1] != keys.stop - keys.start:
                scaled = q.new_empty(q.shape[0], keys.stop - keys.start)
            torch.mm(q, self.keys(block, keys).T, out=scaled)
            yield keys, self._finish(scaled, block, keys, self._masked(block, keys))

    def apply_mask(self, scaled: Tensor, block: RowBlock) -> Tensor:
        """Scaled scores (rows, S) with the call's mask, in place: an additive one added, -inf where masked."""
        keys = slice(0, self.kv_len)
        return self._finish(scaled, block, keys, self._masked(block, keys))

    def _key_ranges(self, end: int) -> Iterator[slice]:
        for start in range(0, end, self._tile[1]):
            yield slice(start, min(start + self._tile[1], end))

    def _finish(self, scaled: Tensor, block: RowBlock, keys: slice, masked: Tensor | None) -> Tensor:
        if self._mask is not None and self._mask.dtype != torch.bool:
            scaled += self._mask[*block.index, keys].double()
        if masked is not None:
            scaled.masked_fill_(masked, -torch.inf)
        return scaled

    def _masked(self, block: RowBlock, keys: slice) -> Tensor | None:
        masked = None
        if self._mask is not None:
            mask = self._mask[*block.index, keys]
            masked = ~mask if mask.dtype == torch.bool else torch.isneginf(mask)
        if self.x.is_causal and keys.stop > block.rows.start + 1:
            device = self.x.q.device
            row = torch.arange(block.rows.start, block.rows.stop, device=device)[:, None]
            key = torch.arange(keys.start, keys.stop, device=device)
            above_diagonal = key > row
            masked = above_diagonal if masked is None else masked | above_diagonal
        return masked

"""A part of a call that is small enough for matrices of all its pairs: whole key heads, or some rows of some heads."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from precision.numerics.reference import Reference
from precision.operands import Operands

_MOST_HEADS = 4  # over which the rows of a part are spread


@dataclass(frozen=True)
class Sample:
    """Some key heads of a call with the query heads that share them, and some of their query rows.

    Where one key head with all its rows has more than `pairs` (query, key) pairs, rows are left out, and `is_complete`
    is False: out and dq of the rows in the part are those of the whole, but dk and dv need every row.
    """

    heads: Tensor  # places in the (batch, key heads) of the call, flattened
    rows: Tensor  # query rows
    is_complete: bool

    @classmethod
    def of(cls, x: Operands, pairs: int) -> Sample:
        """At most about `pairs` pairs, evenly spread."""
        batch, q_heads, q_len, _ = x.q.shape
        kv_heads, kv_len = x.k.shape[1:3]
        group = q_heads // kv_heads
        a_row, a_head = max(1, group * kv_len), max(1, group * kv_len * q_len)
        is_complete = a_head <= pairs
        heads = _spread(batch * kv_heads, pairs // a_head if is_complete else _MOST_HEADS)
        rows = _spread(q_len, q_len if is_complete else max(1, pairs // (a_row * max(1, len(heads)))))
        return cls(heads.to(x.q.device), rows.to(x.q.device), is_complete)

    def take_rows(self, tensor: Tensor, group: int) -> Tensor:
        """The part of a (B, Hq, L, ...) tensor, as (heads, 1, group * rows, ...): shared key heads as more rows."""
        return self._fold(tensor[:, :, self.rows], group)

    def take_keys(self, tensor: Tensor) -> Tensor:
        """The part of a (B, Hkv, S, d) tensor, as (heads, 1, S, d)."""
        return tensor.flatten(0, 1)[self.heads][:, None]

    def take_call(self, right: Reference) -> Reference:
        """The part of a call with its reference: one key head, no grouped heads, the mask written out."""
        x = right.operands
        group = x.q.shape[1] // x.k.shape[1]
        part = replace(
            x,
            q=self.take_rows(x.q, group),
            k=self.take_keys(x.k),
            v=self.take_keys(x.v),
            attn_mask=self._take_mask(x, group),
            is_causal=False,
            scale=x.scale_value,
        )
        return Reference(
            part,
            self.take_rows(right.out, group),
            self.take_rows(right.row_max, group),
            self.take_rows(right.row_sum, group),
        )

    def _take_mask(self, x: Operands, group: int) -> Tensor | None:
        batch, q_heads, q_len, _ = x.q.shape
        kv_len = x.k.shape[2]
        if x.is_causal:
            seen = torch.arange(kv_len, device=x.q.device) <= self.rows[:, None]
            return self._fold(seen.expand(batch, q_heads, -1, -1), group)
        return None if x.attn_mask is None else self.take_rows(x.attn_mask.expand(batch, q_heads, q_len, kv_len), group)

    def _fold(self, rows: Tensor, group: int) -> Tensor:
        batch, q_heads, length = rows.shape[:3]
        return rows.reshape(batch * q_heads // group, 1, group * length, *rows.shape[3:])[self.heads]


def _spread(count: int, most: int) -> Tensor:
    """At most `most` of the numbers from 0 to count - 1, evenly spread."""
    taken = min(count, max(most, 1)) if count else 0
    return (torch.arange(taken, dtype=torch.float64) * count / max(taken, 1)).long()

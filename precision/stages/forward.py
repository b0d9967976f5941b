"""The forward pass of a plan."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from precision.numerics.scores import RowBlock
from precision.operands import Operands
from precision.stages.accumulate import add_product, add_sum
from precision.stages.maxima import subtracted
from precision.stages.plan import Plan
from precision.stages.prepare import Prepared, format_of, prepare
from precision.stages.rounder import Observer, Rounder
from precision.stages.scoring import ALL, Scoring


@dataclass(frozen=True)
class Forward:
    """What a plan gives: out (B, Hq, L, d_v) and lse (B, Hq, L), float64 with the values of the plan's formats."""

    plan: Plan  # with its formats resolved
    prepared: Prepared
    out: Tensor
    lse: Tensor


@torch.no_grad()
def attend(plan: Plan, x: Operands, observe: Observer | None = None) -> Forward:
    """Attention of x as the plan computes it: each stage in fp64 and rounded once.

    `input` and `opmath` in the plan mean the dtype of x. `observe` is called with every stage as it is made. Raises
    UsageError when there is no key, or the plan's rotation does not fit the width of the heads.
    """
    plan = plan.resolve(format_of(x))
    rounder = Rounder(plan, observe)
    prepared = prepare(plan, x, rounder)
    rows = _Rows(Scoring(plan, prepared, rounder))
    out = x.q.new_empty((*x.q.shape[:3], x.v.shape[-1]), dtype=torch.float64)
    lse = x.q.new_empty(x.q.shape[:3], dtype=torch.float64)
    for block in prepared.row_blocks():
        out[block.index], lse[block.index] = rows.attend(block)
    return Forward(plan, prepared, out, lse)


class _Rows:
    """Attention of blocks of query rows. All keys are at hand; only the state goes tile by tile."""

    def __init__(self, scoring: Scoring) -> None:
        self._scoring, self._plan, self._prepared = scoring, scoring.plan, scoring.prepared
        self._may_mask = scoring.prepared.stored.attn_mask is not None or scoring.prepared.stored.is_causal

    def attend(self, block: RowBlock) -> tuple[Tensor, Tensor]:
        """(rows, d_v) and (rows,)."""
        plan, rounding = self._plan, self._scoring.rounding
        logits = self._scoring.logits(block)
        nothing = (logits == -torch.inf).all(-1, keepdim=True) if self._may_mask else None
        maxima = rounding("m", block)(subtracted(logits, plan))  # (rows, tiles)
        shift = maxima.masked_fill(maxima == -torch.inf, 0.0) if plan.safe else maxima
        e = self._scoring.exponentials(logits - self._per_key(shift), block, plan.exp)
        alpha = self._rescales(maxima, shift, block)
        total = self._sum(e, alpha, block)
        lse = rounding("lse", block)(maxima[:, -1:] + total.log())
        if nothing is not None and plan.safe:
            total = total.masked_fill(nothing, 1.0)
        weights = rounding("weights", block)(e / total) if plan.normalise == "before" else e
        state = self._weigh(rounding("p", block)(weights), alpha, block)
        out = state if plan.normalise == "before" else state / total
        return rounding("out", block)(out), lse[:, 0]

    def _tiles(self) -> list[slice]:
        keys = self._prepared.scores.kv_len
        size = self._plan.block or keys
        return [slice(start, min(start + size, keys)) for start in range(0, keys, size)]

    def _per_key(self, per_tile: Tensor) -> Tensor:
        """(rows, tiles) to what broadcasts to (rows, keys)."""
        if per_tile.shape[1] == 1 or self._plan.max in ("none", "exact"):
            return per_tile[:, :1]
        return per_tile.repeat_interleave(self._plan.block, -1)[:, : self._prepared.scores.kv_len]

    def _rescales(self, maxima: Tensor, shift: Tensor, block: RowBlock) -> Tensor | None:
        """(rows, tiles): what the state is multiplied by before each tile; None where the maximum never moves."""
        if maxima.shape[1] == 1 or self._plan.max in ("none", "exact"):
            return None
        before = torch.cat([maxima[:, :1], maxima[:, :-1]], -1)
        return self._scoring.rounding("alpha", block)((before - shift).exp())

    def _sum(self, e: Tensor, alpha: Tensor | None, block: RowBlock) -> Tensor:
        """(rows, 1), the sum of the exponentials."""
        total: Tensor | None = None
        for number, keys in enumerate(self._tiles()):
            if total is not None and alpha is not None:
                total = total * alpha[:, number, None]
            total = add_sum(total, e[:, keys], self._plan.l_chunk, self._scoring.rounding("l", block, number))
        assert total is not None  # there is a key
        return total

    def _weigh(self, p: Tensor, alpha: Tensor | None, block: RowBlock) -> Tensor:
        """(rows, d_v), the weighted sum of the values."""
        values = self._prepared.scores.values(block, ALL)
        round_acc, round_state = self._scoring.rounding("pv_acc", block), self._scoring.rounding("pv", block)
        state: Tensor | None = None
        for number, keys in enumerate(self._tiles()):
            if state is not None and alpha is not None:
                state = state * alpha[:, number, None]
            state = round_state(add_product(state, p[:, keys], values[keys], self._plan.pv_chunk, round_acc))
        assert state is not None
        return state

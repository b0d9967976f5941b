"""Scores and exponentials of some rows, as the forward pass makes them and the backward pass makes them again."""

from __future__ import annotations

import torch
from torch import Tensor

from precision.numerics.scores import RowBlock
from precision.stages.accumulate import Round, add_product
from precision.stages.exponential import LOG2_E, two_to_the
from precision.stages.plan import Exponential, Plan
from precision.stages.prepare import Prepared
from precision.stages.rounder import Rounder

ALL = slice(None)


class Scoring:
    """The first half of a plan, for blocks of query rows against all keys."""

    def __init__(self, plan: Plan, prepared: Prepared, rounder: Rounder) -> None:
        self.plan, self.prepared, self.rounder = plan, prepared, rounder
        mask = prepared.stored.attn_mask
        self._is_additive = mask is not None and mask.dtype != torch.bool

    def rounding(self, stage: str, block: RowBlock, column: int = 0) -> Round:
        """The rounding of a stage of the block, as a function of (rows, columns) that begin at a column."""
        corner = (block.batch, block.head, block.rows.start, column)
        return lambda x: self.rounder(stage, x, corner)

    def logits(self, block: RowBlock) -> Tensor:
        """(rows, keys): scores, scaled and masked; -inf where a key takes no part."""
        scores = self.prepared.scores
        round_acc = self.rounding("s_acc", block)
        q, k = scores.queries(block), scores.keys(block, ALL)
        logits = self.rounding("s", block)(add_product(None, q, k.T, self.plan.s_chunk, round_acc))
        if self.plan.scale == "after":
            logits = self.rounding("scaled", block)(logits * self.prepared.scale)
        logits = scores.apply_mask(logits, block)
        return self.rounding("masked", block)(logits) if self._is_additive else logits

    def exponentials(self, difference: Tensor, block: RowBlock, kind: Exponential) -> Tensor:
        """exp of the differences of scores (rows, keys), rounded as `shifted` before and as `e` after."""
        round_argument, round_result = self.rounding("shifted", block), self.rounding("e", block)
        if kind == "exp":
            return round_result(round_argument(difference).exp())
        return round_result(two_to_the(round_argument(difference * LOG2_E), kind, self.plan.degree))

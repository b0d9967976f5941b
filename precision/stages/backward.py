"""The backward pass of a plan: P recomputed from lse, as FlashAttention does it.

With P = exp(S - lse), dP = dO V^T and D = rowsum(dO * O): dV = P^T dO, dS = P * (dP - D), dQ = scale dS K and
dK = scale dS^T Q (Dao et al., "FlashAttention", 2022, appendix B.4).
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from precision.numerics.gradients import Gradients
from precision.numerics.scores import RowBlock, Scores
from precision.stages.accumulate import add_product
from precision.stages.forward import Forward
from precision.stages.rounder import Observer, Rounder
from precision.stages.scoring import ALL, Scoring


@torch.no_grad()
def attend_backward(forward: Forward, do: Tensor, observe: Observer | None = None) -> Gradients:
    """Gradients of sum(do * out) for do (B, Hq, L, d_v), float64 with the values of the plan's formats."""
    plan, prepared = forward.plan, forward.prepared
    rounder = Rounder(plan, observe)
    backward = _Backward(forward, rounder("do", do.double()), Scoring(plan, prepared, rounder))
    for block in prepared.row_blocks(plan.grad_chunk or 1):
        backward.add(block)
    scale = prepared.stored.scale_value
    dq, dk = backward.dq * scale, backward.dk * scale
    if prepared.rotation is not None:
        dq, dk = dq @ prepared.rotation.T, dk @ prepared.rotation.T
    return Gradients(rounder("dq", dq), rounder("dk", dk), rounder("dv", backward.dv))


class _Backward:
    """The gradients before they are scaled, a block of query rows at a time."""

    def __init__(self, forward: Forward, do: Tensor, scoring: Scoring) -> None:
        self._forward, self._do, self._scoring = forward, do, scoring
        stored = forward.prepared.stored
        self._group = stored.q.shape[1] // stored.k.shape[1]
        self._stored = Scores(stored)
        self.dq, self.dk, self.dv = (torch.zeros_like(t) for t in (stored.q, stored.k, stored.v))

    def add(self, block: RowBlock) -> None:
        """Set the block's rows of dq and add its part to dk and dv."""
        plan, rounding = self._scoring.plan, self._scoring.rounding
        key_block = replace(block, head=block.head // self._group, rows=slice(0, None))
        round_dq, round_keys = rounding("grad_acc", block), rounding("grad_acc", key_block)
        key_head = key_block.batch, key_block.head
        do, weights = self._do[block.index], self._weights(block)
        p_grad = rounding("p_grad", block)(weights)
        self.dv[key_head] = add_product(self.dv[key_head], p_grad.T, do, plan.grad_chunk, round_keys)
        dp = rounding("dp", block)(do @ self._stored.values(block, ALL).T)
        d = rounding("d", block)((do * self._forward.out[block.index]).sum(-1, keepdim=True))
        ds = rounding("ds", block)(weights * (dp - d))
        self.dq[block.index] = add_product(None, ds, self._stored.keys(block, ALL), plan.dq_chunk, round_dq)
        queries = self._stored.queries(block)
        self.dk[key_head] = add_product(self.dk[key_head], ds.T, queries, plan.grad_chunk, round_keys)

    def _weights(self, block: RowBlock) -> Tensor:
        """P, (rows, keys), from scores made again."""
        plan, lse = self._scoring.plan, self._forward.lse[block.index][:, None]
        shift = lse.masked_fill(lse == -torch.inf, 0.0) if plan.safe else lse
        return self._scoring.exponentials(self._scoring.logits(block) - shift, block, plan.grad_exp)

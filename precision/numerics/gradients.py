"""The fp64 gradients of attention, streaming over the same tiles as the reference.

With P = softmax(S), dP = dO V^T and D = rowsum(dO * O): dV = P^T dO, dS = P * (dP - D), dQ = scale dS K and
dK = scale dS^T Q (Dao et al., "FlashAttention", 2022, appendix B.4). Query heads that share a key head add up
in dK and dV.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from precision.numerics.scores import RowBlock, Scores
from precision.operands import Operands


@dataclass(frozen=True)
class Gradients:
    """dq (B, Hq, L, d_k), dk (B, Hkv, S, d_k) and dv (B, Hkv, S, d_v)."""

    dq: Tensor
    dk: Tensor
    dv: Tensor


class Forward(Protocol):
    """What the backward pass needs of the forward one, in fp64.

    The maximum and the sum are kept apart because their one number, lse = row_max + log(row_sum), forgets the sum
    when the logits are large: at 1e17 every weight recomputed from it would be 1.
    """

    @property
    def out(self) -> Tensor:
        """(B, Hq, L, d_v)."""
        ...

    @property
    def row_max(self) -> Tensor:
        """(B, Hq, L), the largest logit; -inf where a row sees no key."""
        ...

    @property
    def row_sum(self) -> Tensor:
        """(B, Hq, L), the sum of exp(logit - row_max); 0 where a row sees no key."""
        ...


@torch.no_grad()
def attend_backward(x: Operands, forward: Forward, do: Tensor) -> Gradients:
    """Gradients of sum(do * out) with respect to q, k and v, for a finite do (B, Hq, L, d_v).

    As in the forward pass, a key whose logit is -inf takes no part, whatever it holds, and a row that sees no key
    is constant: its dq is 0 and its do counts nowhere.
    """
    backward = _Backward(Scores(x), forward, do)
    # Held as (B, H, d, length): BLAS takes Q^T dS in three quarters of the time of the tall and thin dS^T Q.
    dq, dk, dv = (torch.zeros(t.mT.shape, dtype=torch.float64, device=t.device) for t in (x.q, x.k, x.v))
    group = x.q.shape[1] // x.k.shape[1]
    for block in backward.scores.blocks():
        key_head = block.batch, block.head // group
        backward.add(block, dq[block.batch, block.head, :, block.rows], dk[key_head], dv[key_head])
    return Gradients(dq.mT.contiguous(), dk.mT.contiguous(), dv.mT.contiguous())


class _Backward:
    """The backward pass of one call, a block of query rows at a time."""

    def __init__(self, scores: Scores, forward: Forward, do: Tensor) -> None:
        self.scores = scores
        self._forward = forward
        self._do = do
        x = scores.x
        self._all_finite = all(bool(t.isfinite().all()) for t in (x.q, x.k, x.v))

    def add(self, block: RowBlock, dq: Tensor, dk: Tensor, dv: Tensor) -> None:
        """Set dq (d_k, rows) and add the block's part to dk (d_k, S) and dv (d_v, S)."""
        scores = self.scores
        row_max = self._forward.row_max[block.index]
        shift = row_max.where(row_max.isfinite(), 0.0)[:, None]
        do_over_sum = self._do_over_sum(block)
        d_over_sum = (do_over_sum * self._forward.out[block.index]).sum(-1, keepdim=True)  # (rows, 1)
        scaled_q = self._finite(scores.queries(block) * scores.scale)
        for keys, logits in scores.logits(block):
            absent = None if self._all_finite else logits == -torch.inf
            weights = logits.sub_(shift).exp_()  # (rows, keys), P times its row's sum
            dv[:, keys].addmm_(do_over_sum.T, weights)
            ds = torch.mm(do_over_sum, scores.values(block, keys).T).sub_(d_over_sum).mul_(weights)
            if absent is not None:
                ds.masked_fill_(absent, 0.0)
            dq.addmm_(self._finite(scores.keys(block, keys)).T, ds.T, alpha=scores.scale)
            dk[:, keys].addmm_(scaled_q.T, ds)

    def _do_over_sum(self, block: RowBlock) -> Tensor:
        """(rows, d_v): the division of exp(logits - max) by the row's sum goes into dO, which is narrower."""
        row_sum = self._forward.row_sum[block.index][:, None]
        over_sum = self._do[block.index].double() / row_sum
        over_sum.masked_fill_(~row_sum.isfinite(), torch.nan)
        return over_sum.masked_fill_(row_sum == 0, 0.0)

    def _finite(self, factor: Tensor) -> Tensor:
        """q or k as a factor of dS, where 0 is to give 0; a pair that takes part has made its dS NaN by then."""
        return factor if self._all_finite else factor.nan_to_num(0.0, 0.0, 0.0)

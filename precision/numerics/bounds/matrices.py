"""The matrices of one small attention call in fp64, from which every bound is made."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from precision.numerics.reference import Reference
from precision.numerics.scores import Scores


@dataclass(frozen=True)
class Sizes:
    """One number an element: out (B, Hq, L, d_v), dq (B, Hq, L, d_k), dk (B, Hkv, S, d_k), dv (B, Hkv, S, d_v)."""

    out: Tensor
    dq: Tensor
    dk: Tensor
    dv: Tensor


class Matrices:
    """P, dP and what goes with them, each made when asked for; (B, Hq, L, S) in fp64, so for small problems."""

    def __init__(self, right: Reference, do: Tensor | None = None) -> None:
        x = right.operands
        self.right = right
        self.group = x.q.shape[1] // x.k.shape[1]
        self.scale = abs(x.scale_value)
        self.q_size = x.q.double().abs()  # (B, Hq, L, d_k)
        self.do = torch.zeros_like(right.out) if do is None else do.double()  # 0 where only out is asked for
        self.k, self.v = (t.double().repeat_interleave(self.group, 1) for t in (x.k, x.v))  # (B, Hq, S, d)

    @cached_property
    def logits(self) -> Tensor:
        """(B, Hq, L, S), -inf where a key takes no part."""
        scores = Scores(self.right.operands)
        full = torch.full(
            (*self.q_size.shape[:3], scores.kv_len), -torch.inf, dtype=torch.float64, device=self.q_size.device
        )
        for block in scores.blocks():
            for keys, logits in scores.logits(block):
                full[*block.index, keys] = logits
        return full

    @cached_property
    def p(self) -> Tensor:
        """The weights P, (B, Hq, L, S)."""
        shift = self.right.row_max.where(self.right.row_max.isfinite(), 0.0)
        total = self.right.row_sum.where(self.right.row_sum != 0, 1.0)
        return (self.logits - shift[..., None]).exp() / total[..., None]

    @cached_property
    def products(self) -> Tensor:
        """|q|.|k| scale, what the roundings of a score are relative to, (B, Hq, L, S)."""
        return (self.q_size @ self.k.abs().mT) * self.scale

    @cached_property
    def dp(self) -> Tensor:
        """dP = dO V^T, (B, Hq, L, S)."""
        return self.do @ self.v.mT

    @cached_property
    def d(self) -> Tensor:
        """D = rowsum(dO * O), (B, Hq, L, 1)."""
        return (self.do * self.right.out).sum(-1, keepdim=True)

    @property
    def ds(self) -> Tensor:
        """dS = P * (dP - D), the gradient of the logits and of a mask that is added to them, (B, Hq, L, S)."""
        return self.p * (self.dp - self.d)

    @cached_property
    def dp_size(self) -> Tensor:
        """|dO| |V|^T, (B, Hq, L, S)."""
        return self.do.abs() @ self.v.abs().mT

    @cached_property
    def d_size(self) -> Tensor:
        """|D| before the terms can cancel, (B, Hq, L, 1)."""
        return (self.do * self.right.out).abs().sum(-1, keepdim=True)

    def shared(self, per_query_head: Tensor) -> Tensor:
        """Query heads that share a key head add up."""
        batch, heads, *rest = per_query_head.shape
        return per_query_head.reshape(batch, heads // self.group, self.group, *rest).sum(2)

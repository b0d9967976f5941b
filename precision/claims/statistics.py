"""What a softmax does, row by row: how peaked it is, and what gradient it lets through."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from precision.formats import find_format

DTYPES = ("fp16", "bf16", "fp32")
SHARP = 0.99  # a row whose largest weight reaches this counts as one-hot


@dataclass(frozen=True)
class Rows:
    """Weights p (..., L, S) and the gradient ds of the scores under an upstream gradient dp ~ N(0, 1)."""

    p: Tensor
    ds: Tensor

    @classmethod
    def of(cls, p: Tensor, generator: Generator) -> Rows:
        """dS = (diag(p) - p p^T) dP, row by row."""
        dp = torch.randn(p.shape, generator=generator, dtype=torch.float64)
        return cls(p, p * (dp - (p * dp).sum(-1, keepdim=True)))

    @property
    def largest(self) -> Tensor:
        """The largest weight of each row, (..., L)."""
        return self.p.amax(-1)

    @property
    def entropy(self) -> Tensor:
        """-sum p ln p over ln S, (..., L): 1 is uniform, 0 is one-hot."""
        return torch.sum(torch.special.entr(self.p), -1) / math.log(self.p.shape[-1])

    @property
    def jacobian_norm(self) -> Tensor:
        """Frobenius norm of diag(p) - p p^T, (..., L), from its entries p_i (1 - p_i) and -p_i p_j."""
        square = self.p.square().sum(-1)
        return (square - 2 * self.p.pow(3).sum(-1) + square.square()).clamp_min(0).sqrt()

    @property
    def off_peak(self) -> Tensor:
        """|dL/ds_j| for every j that is not its row's argmax, flat."""
        peak = torch.zeros_like(self.p, dtype=torch.bool).scatter_(-1, self.p.argmax(-1, keepdim=True), True)
        return self.ds[~peak].abs()

    def dq_norm(self, k: Tensor, scale: float) -> Tensor:
        """Euclidean norm of each row of dQ = scale dS K, (..., L), for k (..., S, d_k)."""
        return (scale * self.ds @ k).square().sum(-1).sqrt()


def share_zero(values: Tensor, dtype: str) -> float:
    """Share of the values that the dtype rounds to 0: up to half its smallest number, a tie that goes to even."""
    return float((values.abs() <= find_format(dtype).smallest / 2).double().mean())


def percentile(values: Tensor, percent: float) -> float:
    """A percentile of any tensor; torch's own quantile refuses large ones."""
    # Rounded before it is divided: 99.9 % of 1000 is 999, and not a hair more.
    rank = max(1, math.ceil(round(percent * values.numel()) / 100))
    return float(values.flatten().kthvalue(rank).values)

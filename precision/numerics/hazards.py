"""Hazards: what the exact values of a problem do to a number format, whoever computes it.

Everything is counted on the fp64 scores of the rounded operands. A hazard is where a kernel that keeps this
value in this format must fail; a kernel that keeps it in a wider one need not. Raw scores are counted over all
pairs of a query and a key, since unfused kernels compute the masked ones too; all else over the pairs that take
part.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from precision.formats import Format
from precision.numerics.mask_facts import MaskFacts, find_mask_facts
from precision.numerics.reference import Reference
from precision.numerics.scores import Scores, Tile
from precision.operands import Operands


@dataclass(frozen=True)
class Hazards(MaskFacts):
    """Counts and sizes over the (query, key) pairs and the rows of one problem, for one format."""

    pairs: int  # that take part
    logit_std: float  # of the logits, scaled and masked; of the finite ones, as all sizes
    logit_max: float  # largest |logit|
    raw_std: float  # of the raw scores q.k before scale and mask
    raw_max: float
    scores_over_before_scale: int  # pairs whose |q.k| rounds to infinity
    scores_over_after_scale: int  # pairs whose |logit| rounds to infinity
    exp_inf_unshifted: int  # pairs whose exp(logit) rounds to infinity when no maximum is subtracted
    rows_exp_inf_unshifted: int
    rows_sum_inf_unshifted: int  # rows whose sum of exp(logit) rounds to infinity
    weights_zero: int  # pairs whose weight, positive in exact arithmetic, rounds to 0
    weights_zero_mass_mean: float  # weight lost that way, mean over the rows that see a key
    weights_zero_mass_max: float  # weight lost that way, worst row


def find_hazards(x: Operands, right: Reference, format: Format) -> Hazards:
    """Hazards of the operands as given (already rounded), with their fp64 reference."""
    scores = Scores(x)
    tally = _Tally(format)
    lost = torch.zeros_like(right.lse)
    exp_inf = torch.zeros_like(right.lse, dtype=torch.bool)
    for block in scores.blocks():
        for tile in scores.tiles(block):
            if (harmed := tally.add(tile, right.lse[block.index])) is not None:
                lost[block.index] += harmed[0]
                exp_inf[block.index] |= harmed[1]
    lost_in_rows = lost[right.lse != -torch.inf]
    return Hazards(
        **vars(find_mask_facts(x, right)),
        pairs=tally.logits.count,
        logit_std=tally.logits.std(),
        logit_max=tally.logits.largest,
        raw_std=tally.raw.std(),
        raw_max=tally.raw.largest,
        scores_over_before_scale=tally.raw.over,
        scores_over_after_scale=tally.logits.over,
        exp_inf_unshifted=tally.exp_inf,
        rows_exp_inf_unshifted=int(exp_inf.sum()),
        rows_sum_inf_unshifted=int((right.lse >= format.exp_overflow).sum()),
        weights_zero=tally.weights_zero,
        weights_zero_mass_mean=float(lost_in_rows.mean()) if lost_in_rows.numel() else 0.0,
        weights_zero_mass_max=float(lost_in_rows.max()) if lost_in_rows.numel() else 0.0,
    )


class _Moments:
    """Running size of one kind of score: how many, how many round to infinity, and the spread of the finite ones."""

    def __init__(self) -> None:
        self.count = self.over = 0
        self.largest = 0.0
        self._finite = 0
        self._origin = self._sum = self._squares = 0.0  # sums of value - origin: a spread far from 0 keeps its digits

    def add(self, values: Tensor, format: Format) -> None:
        self.count += values.numel()
        low, high = _extremes(values)
        if not max(-low, high) < format.overflow_threshold:  # a NaN also comes here
            self.over += int((values.abs() >= format.overflow_threshold).sum())
        if not math.isfinite(high - low):
            values = values[values.isfinite()]
            low, high = _extremes(values)
        if values.numel() == 0:
            return
        if self._finite == 0:
            self._origin = float(values.mean())
        self._finite += values.numel()
        self.largest = max(self.largest, -low, high)
        from_origin = values - self._origin
        self._sum += float(from_origin.sum())
        self._squares += float(torch.linalg.vector_norm(from_origin)) ** 2

    def std(self) -> float:
        if self._finite == 0:
            return 0.0
        mean = self._sum / self._finite
        return math.sqrt(max(0.0, self._squares / self._finite - mean * mean))


def _extremes(values: Tensor) -> tuple[float, float]:
    """Smallest and largest; NaN both where there is a NaN, 0 both where there is nothing."""
    if values.numel() == 0:
        return 0.0, 0.0
    low, high = values.aminmax()
    return float(low), float(high)


class _Tally:
    """Running counts over the tiles of a problem."""

    def __init__(self, format: Format) -> None:
        self.format = format
        self.raw, self.logits = _Moments(), _Moments()
        self.exp_inf = self.weights_zero = 0

    def add(self, tile: Tile, lse: Tensor) -> tuple[Tensor, Tensor] | None:
        """Count one tile; returns the weight lost to underflow and whether an exp overflows, each (rows,), if any."""
        logits = tile.logits if tile.masked is None else tile.logits[~tile.masked]
        self.raw.add(tile.raw, self.format)
        self.logits.add(logits, self.format)
        if logits.numel() == 0 or self._is_harmless(logits, lse):
            return None
        exp_inf = tile.logits >= self.format.exp_overflow
        self.exp_inf += int(exp_inf.sum())
        log_weights = tile.logits - lse.where(lse != -torch.inf, 0.0)[:, None]
        zero = (log_weights <= self.format.exp_underflow) & (log_weights != -torch.inf)
        self.weights_zero += int(zero.sum())
        return torch.where(zero, log_weights.exp(), 0.0).sum(-1), exp_inf.any(-1)

    def _is_harmless(self, logits: Tensor, lse: Tensor) -> bool:
        """Whether the extremes alone show that no exponential overflows and no weight underflows."""
        low, high = _extremes(logits)
        return high < self.format.exp_overflow and low - float(lse.max()) > self.format.exp_underflow

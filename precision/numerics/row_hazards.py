"""Which rows hold a value that a number format cannot hold, and at which stage of a kernel that keeps it there.

As in hazards.py all is told from exact scores; here by row, and only what harms one: a score that becomes -inf counts
where its weight would not be 0 anyway.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

import torch
from torch import Tensor

from precision.formats import Format
from precision.numerics.failure import Kind, Place
from precision.numerics.reference import Reference
from precision.numerics.scores import RowBlock, Scores, Tile

WEIGHTS = "weights"  # softmax weights, of which a row has a sum to lose from

_BECOMES: dict[Kind, float] = {"overflow": math.inf, "underflow": 0.0}


@dataclass(frozen=True)
class Kernel:
    """What is known of a kernel."""

    max_subtraction: bool | None = None  # None where that is not known
    scale_first: bool = False  # whether q is multiplied by the scale, and not the scores

    @classmethod
    def of(cls, method: str, max_subtraction: bool) -> Kernel:
        """What is known of a method; backends that let the place of the scale be chosen call the option `scale`."""
        return cls(max_subtraction, "scale=before" in method)


@dataclass(frozen=True)
class Stage:
    """A stage at which values fail in one way."""

    name: str  # one of precision/stages/plan.py
    kind: Kind
    limit: float


@dataclass(frozen=True)
class Fails:
    """Values of one stage in some rows, and which of them fail; both (rows, columns)."""

    stage: Stage
    column: int  # of the first value
    values: Tensor
    hit: Tensor


class RowHazards:
    """Hazards of some blocks of rows, or of all: how many values fail, by stage and row, and what weight is lost."""

    def __init__(
        self, right: Reference, format: Format, kernel: Kernel, blocks: Iterable[RowBlock] | None = None
    ) -> None:
        self._right, self._format, self._kernel = right, format, kernel
        self._scores = Scores(right.operands)
        self.counts: dict[Stage, Tensor] = {}  # (B, Hq, L) each, in the order of the data path
        self.lost_weight = torch.zeros_like(right.lse)  # (B, Hq, L)
        self.weighted = torch.zeros_like(right.out)  # sum of p |v|
        for block in self._scores.blocks() if blocks is None else blocks:
            for tile in self._scores.tiles(block):
                weights = self._weights(tile, block)
                values = self._scores.values(block, tile.keys).abs().nan_to_num(0.0, 0.0)
                self.weighted[block.index] += weights.nan_to_num(0.0, 0.0) @ values
                for fails in self._tile_fails(tile, weights):
                    self._count(fails, block)
            for fails in self._row_fails(block):
                self._count(fails, block)

    def first_place(self, stage: Stage, row: tuple[int, int, int]) -> Place:
        """The first value that fails at this stage in the row (b, h, i), which holds one."""
        block = RowBlock(row[0], row[1], slice(row[2], row[2] + 1))
        of_tiles = (self._tile_fails(tile, self._weights(tile, block)) for tile in self._scores.tiles(block))
        every = chain(chain.from_iterable(of_tiles), self._row_fails(block))
        fails = next(fails for fails in every if fails.stage == stage and fails.hit.any())
        column = int(fails.hit[0].int().argmax())
        value = float(fails.values[0, column])
        return Place((*row, fails.column + column), value, math.copysign(_BECOMES[stage.kind], value))

    def _weights(self, tile: Tile, block: RowBlock) -> Tensor:
        """(rows, keys), 0 where a key takes no part."""
        lse = self._right.lse[block.index][:, None]
        return (tile.logits - lse.masked_fill(lse == -torch.inf, 0.0)).exp()

    def _count(self, fails: Fails, block: RowBlock) -> None:
        counts = self.counts.setdefault(fails.stage, torch.zeros_like(self._right.lse, dtype=torch.int64))
        counts[block.index] += fails.hit.sum(-1)
        if fails.stage.name == WEIGHTS:
            self.lost_weight[block.index] += fails.values.where(fails.hit, 0.0).sum(-1)

    def _tile_fails(self, tile: Tile, weights: Tensor) -> Iterator[Fails]:
        """Stages of a pair of a query and a key, in the order of the data path."""
        format, start = self._format, tile.keys.start
        takes_part = tile.logits != -torch.inf
        scaled = tile.raw * self._scores.scale
        matters = takes_part & ((scaled >= 0) | (weights > format.smallest / 2))
        for name, values in self._products(tile.raw, scaled):
            yield Fails(self._overflow(name), start, values, matters & (values.abs() >= format.overflow_threshold))
        if self._is_additive:
            yield Fails(
                self._overflow("masked"), start, tile.logits,
                matters & (tile.logits.abs() >= format.overflow_threshold),
            )  # fmt: skip
        if not self._kernel.max_subtraction:
            yield Fails(self._overflow("e"), start, tile.logits.exp(), tile.logits >= format.exp_overflow)
        zero = takes_part & (weights <= format.smallest / 2)
        yield Fails(self._underflow(WEIGHTS), start, weights, zero)

    def _products(self, raw: Tensor, scaled: Tensor) -> list[tuple[str, Tensor]]:
        return [("s", scaled)] if self._kernel.scale_first else [("s", raw), ("scaled", scaled)]

    def _row_fails(self, block: RowBlock) -> Iterator[Fails]:
        """Stages of a row: the sum of its exponentials, and its output."""
        if not self._kernel.max_subtraction:
            lse, largest = self._right.lse[block.index], self._right.row_max[block.index]
            total = lse.exp()[:, None]
            yield Fails(self._overflow("l"), 0, total, (lse >= self._format.exp_overflow)[:, None])
            nothing = (largest <= self._format.exp_underflow) & (largest != -torch.inf)
            yield Fails(self._underflow("l"), 0, total, nothing[:, None])
        out = self._right.out[block.index]
        yield Fails(self._overflow("out"), 0, out, out.abs() >= self._format.overflow_threshold)

    @property
    def _is_additive(self) -> bool:
        mask = self._right.operands.attn_mask
        return mask is not None and mask.dtype != torch.bool

    def _overflow(self, name: str) -> Stage:
        return Stage(name, "overflow", self._format.overflow_threshold)

    def _underflow(self, name: str) -> Stage:
        return Stage(name, "underflow", self._format.smallest / 2)

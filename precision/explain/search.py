"""The search for the plan that gives a kernel's output, bit by bit.

It climbs from each of the known kernels, the nearest first, to the best neighbour in the lattice, until none is
significantly better.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from precision.explain.lattice import STARTS, Point
from precision.numerics.rounding import round_to
from precision.operands import Operands
from precision.stages.forward import attend

# By so many standard errors must one plan equal more elements than another to be preferred. Which elements differ from
# two plans that are equally right is chance, and so none of a hundred is preferred by chance.
_SIGNIFICANT = 4.0


class Search:
    """Plans against the outputs (B, Hq, L, d_v) of one kernel for several calls of one shape and dtype."""

    def __init__(self, calls: Sequence[Operands], outs: Sequence[Tensor], dtype: str) -> None:
        self._calls, self._outs, self._dtype = calls, torch.stack(tuple(outs)), dtype
        self._given: dict[Point, Tensor] = {}  # what a plan gives

    def climb(self, enough: float) -> Point:
        """The best plan that a climb ends at; no further start is tried when its share of equal elements is enough."""
        best: Point | None = None
        for start in sorted(STARTS.values(), key=self.equal, reverse=True):
            end = self._climb_from(start)
            if best is None or self.is_better(end, best):
                best = end
            if self.equal(best) >= enough:
                break
        assert best is not None  # there are starts
        plainest = (point for point in STARTS.values() if not self.is_better(best, point))
        return next(plainest, best)

    def compared(self) -> list[Point]:
        """Every plan that was compared, by its share of equal elements."""
        return sorted(self._given, key=self.equal, reverse=True)

    def equal(self, point: Point) -> float:
        """The share of output elements that are the same bits; a NaN is a NaN."""
        return float(self._same(point).double().mean())

    def difference(self, point: Point) -> float:
        """||kernel - plan|| / ||plan||."""
        plan = self._attend(point).double()
        return float((self._outs.double() - plan).norm() / plan.norm())

    def is_better(self, a: Point, b: Point) -> bool:
        """Whether a equals significantly more elements than b; the unit is a row, whose elements differ together."""
        more = (self._same(a).sum(-1) - self._same(b).sum(-1)).double()
        return float(more.sum()) > _SIGNIFICANT * float(more.norm())

    def _climb_from(self, point: Point) -> Point:
        while True:
            nearest = max(point.neighbours(), key=self.equal)
            if not self.is_better(nearest, point):
                return point
            point = nearest

    def _same(self, point: Point) -> Tensor:
        given = self._attend(point)
        return (given == self._outs) | (given.isnan() & self._outs.isnan())

    def _attend(self, point: Point) -> Tensor:
        if point not in self._given:
            outs = [round_to(attend(point.plan, x).out, self._dtype) for x in self._calls]
            self._given[point] = torch.stack(outs)
        return self._given[point]

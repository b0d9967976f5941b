"""First failure of a kernel whose stages are not seen, inferred from exact scores and from what it gave.

The data path is that of a kernel that keeps each stage in the format. A row failed first at the first stage where an
exact value of it does not fit. A stage is ruled out when a row in which a value does not fit there came out right:
this kernel keeps it in a wider format, or never has it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from torch import Tensor

from precision.formats import Format
from precision.numerics.failure import Failure, Kind, Place, Reach
from precision.numerics.reference import Reference
from precision.numerics.row_hazards import WEIGHTS, Kernel, RowHazards, Stage
from precision.numerics.row_outcome import find_outcome
from precision.numerics.scores import RowBlock

UNKNOWN = "unknown"  # the stage, when no value that could explain a row is seen

_ANY_KERNEL = Kernel()


def infer_failures(
    out: Tensor,
    right: Reference,
    format: Format,
    kernel: Kernel = _ANY_KERNEL,
    blocks: Iterable[RowBlock] | None = None,
) -> tuple[Failure, ...]:
    """The failures of a kernel that gave `out` (B, Hq, L, d_v) for the operands of `right`, in that format.

    First those that explain rows that are NaN, infinite or wrong; then rows that see no key and are not 0, NaN that
    got lost and NaN that is due; last the values that do not fit and of which the output shows nothing. `blocks` are
    the rows to look at, all where it is None.
    """
    return tuple(_Inference(out, right, format, kernel, None if blocks is None else list(blocks)).failures())


class _Inference:
    """Explains the rows of one output, each by the first stage that can."""

    def __init__(
        self, out: Tensor, right: Reference, format: Format, kernel: Kernel, blocks: list[RowBlock] | None
    ) -> None:
        self._out, self._right = out, right
        self._hazards = RowHazards(right, format, kernel, blocks)
        self._rows = find_outcome(out, right, format, self._hazards.weighted, blocks)
        self._unexplained = self._rows.broken | self._rows.off

    def failures(self) -> Iterator[Failure]:
        """All of them, those that the output shows first."""
        for stage in self._hazards.counts:
            if stage.name == WEIGHTS:
                yield from self._explain(stage, self._fails(stage) & self._may_be_lost_weight())
            elif not self._is_ruled_out(stage):
                yield from self._explain(stage, self._fails(stage))
        rows = self._rows
        if (left := self._unexplained & rows.broken).any():
            row = _first(left)
            column = int((~self._out[row].isfinite()).int().argmax())
            yield self._observed(UNKNOWN, "invalid", left, (*row, column))
        if rows.masked.any():
            row = _first(rows.masked)
            yield self._observed("out", "masked row", rows.masked, (*row, int((self._out[row] != 0).int().argmax())))
        yield from self._given("lost", rows.lost)
        yield from self._given("input", rows.due)
        for stage in self._hazards.counts:
            if (unharmed := self._fails(stage) & rows.right).any():
                yield self._failure(stage, unharmed)

    def _fails(self, stage: Stage) -> Tensor:
        """(B, Hq, L), rows in which a value does not fit at this stage."""
        return self._hazards.counts[stage] > 0

    def _is_ruled_out(self, stage: Stage) -> bool:
        return bool((self._fails(stage) & self._rows.right).any())

    def _may_be_lost_weight(self) -> Tensor:
        """Rows whose error may come from weights that became 0.

        Without the share w of its weight a row is off by at most w (max |v| + |out|), twice that if what is left is
        divided by its own sum and w is at most a half.
        """
        right = self._right.out.abs()
        largest = self._right.operands.v.double().abs().nan_to_num(0.0, 0.0).amax((-1, -2), keepdim=True)
        group = right.shape[1] // largest.shape[1]
        most = 2.0 * self._hazards.lost_weight[..., None] * (largest.repeat_interleave(group, 1) + right)
        return ((self._out.double() - self._right.out).abs() <= most).all(-1)

    def _explain(self, stage: Stage, rows: Tensor) -> Iterator[Failure]:
        rows = rows & self._unexplained
        if rows.any():
            self._unexplained = self._unexplained & ~rows
            yield self._failure(stage, rows)

    def _failure(self, stage: Stage, rows: Tensor) -> Failure:
        """What failed at a stage in these rows, and what the output shows of it."""
        weight = float(self._hazards.lost_weight[rows].max()) if stage.name == WEIGHTS else None
        return Failure(
            stage.name,
            stage.kind,
            (self._hazards.first_place(stage, _first(rows)),),
            stage.limit,
            int(self._hazards.counts[stage][rows].sum()),
            int(rows.sum()),
            self._shown(rows),
            weight,
            wrong=int((rows & self._rows.off).sum()),
            inferred=True,
        )

    def _observed(self, stage: str, kind: Kind, rows: Tensor, index: tuple[int, ...]) -> Failure:
        """A failure of which only the output tells."""
        place = Place(index, float(self._right.out[index]), float(self._out[index]))
        count = int(rows.sum())
        return Failure(stage, kind, (place,), None, count, count, self._shown(rows), inferred=True)

    def _given(self, kind: Kind, rows: Tensor) -> Iterator[Failure]:
        """Rows that ought not to be finite, with the first operand element that is the reason."""
        if not rows.any():
            return
        x, (b, h, i) = self._right.operands, _first(rows)
        key_head = h * x.k.shape[1] // x.q.shape[1]
        stage, index, value = "scaled", (b, h, i, 0), math.nan  # the scale or the mask, unless an operand is the reason
        for name, tensor, at in (("v", x.v, (b, key_head)), ("k", x.k, (b, key_head)), ("q", x.q, (b, h, i))):
            if (bad := ~tensor[at].isfinite()).any():
                stage, index = name, (*at, *bad.nonzero()[0].tolist())
                value = float(tensor[index])
        count = int(rows.sum())
        place = Place(index, value, value)
        yield Failure(stage, kind, (place,), None, count, count, self._shown(rows), inferred=True)

    def _shown(self, rows: Tensor) -> tuple[Reach, ...]:
        failed = (~self._out.isfinite()).sum(-1)[rows]
        return (Reach("out", int(failed.sum()), int((failed > 0).sum())),) if failed.any() else ()


def _first(rows: Tensor) -> tuple[int, int, int]:
    b, h, i = rows.nonzero()[0].tolist()
    return b, h, i

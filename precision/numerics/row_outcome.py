"""What became of each row of an output, held against the fp64 reference."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from precision.formats import Format
from precision.numerics.reference import Reference
from precision.numerics.scores import RowBlock

# A right kernel may round the weights and the output, each by u; twice that is allowed.
_ALLOWED = 2.0


@dataclass(frozen=True)
class RowOutcome:
    """Which rows are in which state; each is bool, (B, Hq, L), and a row that was not looked at is in none."""

    right: Tensor
    broken: Tensor  # NaN or infinite, and a finite value is due
    off: Tensor  # finite, and off by more than rounding the weights and the output may do
    due: Tensor  # NaN or infinite, as is due
    lost: Tensor  # finite, and NaN or infinity is due
    masked: Tensor  # not 0, and no key is seen


def find_outcome(
    out: Tensor, right: Reference, format: Format, weighted: Tensor, blocks: Iterable[RowBlock] | None = None
) -> RowOutcome:
    """The outcome of the rows of some blocks, or of all; `weighted` is the sum of weight times |v|, (B, Hq, L, d_v)."""
    looked_at = torch.full_like(right.masked_rows, blocks is None)
    for block in blocks or ():
        looked_at[block.index] = True
    seeing = looked_at & ~right.masked_rows
    asked, given = right.out.isfinite().all(-1), out.isfinite().all(-1)
    allowed = _ALLOWED * format.unit_roundoff * (weighted + right.out.abs())
    is_off = ((out.double() - right.out).abs() > allowed).any(-1)
    return RowOutcome(
        right=seeing & asked & given & ~is_off,
        broken=seeing & asked & ~given,
        off=seeing & asked & given & is_off,
        due=seeing & ~asked & ~given,
        lost=seeing & ~asked & given,
        masked=looked_at & right.masked_rows & (out != 0).any(-1),
    )

"""Incidence: how many rows and elements of an output are not numbers, and how many should not be."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from precision.numerics.reference import Reference


@dataclass(frozen=True)
class Incidence:
    """Counts over the output (B, Hq, L, d_v). Fully masked rows are counted apart and in none of the others."""

    elements_nan: int
    elements_posinf: int
    elements_neginf: int
    rows: int  # rows that see at least one key
    rows_nan: int
    rows_inf: int
    rows_nonfinite: int
    rows_masked: int  # rows in which every key is masked
    rows_masked_wrong: int  # of those, rows whose output is not 0
    rows_nan_due: int  # rows whose right value is NaN
    rows_nan_lost: int  # rows whose right value is NaN and whose output is all finite


def count_incidence(out: Tensor, right: Reference) -> Incidence:
    """What happened in `out`, given the fp64 reference of the same operands."""
    masked = right.masked_rows
    kept = out[~masked]  # (rows, d_v)
    nan, infinite = kept.isnan(), kept.isinf()
    expect_nan = right.out[~masked].isnan().any(-1)
    return Incidence(
        elements_nan=int(nan.sum()),
        elements_posinf=int(kept.isposinf().sum()),
        elements_neginf=int(kept.isneginf().sum()),
        rows=kept.shape[0],
        rows_nan=int(nan.any(-1).sum()),
        rows_inf=int(infinite.any(-1).sum()),
        rows_nonfinite=int((nan | infinite).any(-1).sum()),
        rows_masked=int(masked.sum()),
        rows_masked_wrong=int((out[masked] != 0).any(-1).sum()),
        rows_nan_due=int(expect_nan.sum()),
        rows_nan_lost=int((expect_nan & kept.isfinite().all(-1)).sum()),
    )

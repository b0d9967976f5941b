"""The first failure of a case as a cell of its row, inferred for the row of the output that tells most."""

from __future__ import annotations

import json
from collections.abc import Mapping

from torch import Tensor

from precision.numerics.infer_failure import infer_failures
from precision.numerics.reference import Reference
from precision.numerics.row_hazards import Kernel
from precision.numerics.scores import RowBlock
from precision.records.row import Cell
from precision.sweep.truth import Truth

# Counts that tell of a failure, or of scores that may have failed.
_SIGNS = (
    "rows_nonfinite", "rows_masked_wrong", "rows_nan_lost", "scores_over_before_scale", "scores_over_after_scale",
)  # fmt: skip


def first_failure(cells: Mapping[str, Cell], out: Tensor, truth: Truth) -> dict[str, Cell]:
    """The cell `first_failure`; none where the output shows no failure."""
    if not (any(cells[name] for name in _SIGNS) or _may_have_lost_weight(cells, truth)):
        return {}
    kernel = Kernel.of(str(cells["method"]), bool(cells["max_subtraction"]))
    blocks = None if _needs_all_rows(cells) else [_telling_row(cells, out, truth.arithmetic)]
    found = infer_failures(out, truth.arithmetic, truth.format, kernel, blocks)
    shown = [failure for failure in found if failure.is_shown]
    return {"first_failure": str(shown[0])} if shown else {}


def _may_have_lost_weight(cells: Mapping[str, Cell], truth: Truth) -> bool:
    """Whether weights that became 0 can make the largest error: without a share w a row is off by up to 4 w max |v|."""
    lost = float(cells["weights_zero_mass_max"] or 0.0)
    return lost > 0 and float(cells.get("out_max_abs") or 0.0) <= 4 * lost * float(truth.inputs.rounded.v.abs().max())


def _needs_all_rows(cells: Mapping[str, Cell]) -> bool:
    """Whether scores overflow and all rows are finite: which are wrong for it, only those that are right can tell."""
    over = cells["scores_over_before_scale"] or cells["scores_over_after_scale"]
    return bool(over) and not (cells["rows_nonfinite"] or cells["rows_masked_wrong"])


def _telling_row(cells: Mapping[str, Cell], out: Tensor, right: Reference) -> RowBlock:
    """The first row that is NaN or infinite and should not be, or that breaks a convention, or the one furthest off."""
    asked, given = right.out.isfinite().all(-1), out.isfinite().all(-1)
    wrong = right.masked_rows & (out != 0).any(-1)
    for rows in (asked & ~given & ~right.masked_rows, wrong, given & ~asked, ~asked):
        if rows.any():
            b, h, i = rows.nonzero()[0].tolist()
            break
    else:
        b, h, i, _ = json.loads(str(cells["out_worst"]))
    return RowBlock(b, h, slice(i, i + 1))

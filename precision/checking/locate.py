"""Where a tensor is wrong: which batches, heads, rows and columns, when they are not all."""

from __future__ import annotations

import torch
from torch import Tensor

from precision.checking.allowed import allowed_errors
from precision.checking.faults import Evidence
from precision.checking.truth import yardstick_of

_ROWS = {"out": "query", "dq": "query", "dk": "key", "dv": "key"}
_MOST_NAMED = 4
# Of what is allowed: right kernels stay below, and an error that is spread out has elements there outside of any place.
_NEAR = 1 / 2
# Of the elements in the place that is named; with fewer wrong ones it is no place but chance.
_SMALLEST_SHARE = 1 / 4


def locate(evidence: Evidence) -> str:
    """A clause such as `first wrong query 64, only in head 2`; empty when it is wrong all over or here and there."""
    truth, tensor = evidence.truth, evidence.tensor
    yardsticks = yardstick_of(truth.problem, truth.format.name, truth.call.x.q.device)
    allowed = allowed_errors(tensor, truth, yardsticks[tensor])
    wrong = truth.error(tensor, evidence.found[tensor]).abs() > _NEAR * allowed  # (B, H, L, d)
    sequences, heads, rows, columns = (_indices(wrong, dim) for dim in range(4))
    if not len(rows):
        return ""
    place = wrong[sequences][:, heads][:, :, int(rows[0]) :, int(columns[0]) :]
    if float(place.double().mean()) < _SMALLEST_SHARE:
        return ""
    parts = [
        f"first wrong {_ROWS[tensor]} {int(rows[0])}" if rows[0] else "",
        _only("sequence", sequences, wrong.shape[0]),
        _only("head", heads, wrong.shape[1]),
        f"first wrong column {int(columns[0])}" if columns[0] else "",
    ]
    return ", ".join(part for part in parts if part)


def _indices(wrong: Tensor, dim: int) -> Tensor:
    """Where along a dimension anything is wrong."""
    return torch.nonzero(wrong.transpose(0, dim).flatten(1).any(-1)).flatten()


def _only(what: str, which: Tensor, total: int) -> str:
    if len(which) in (0, total):
        return ""
    if len(which) > _MOST_NAMED:
        is_rest = len(which) == total - int(which[0])
        return f"from {what} {int(which[0])} on" if is_rest else ""
    return f"only in {what}{'s' if len(which) > 1 else ''} {', '.join(str(int(i)) for i in which)}"

"""Errors of one tensor as the cells of a row."""

from __future__ import annotations

import json
from dataclasses import asdict

from precision.numerics.metrics import Errors
from precision.records.row import Cell


def error_cells(tensor: str, errors: Errors | None) -> dict[str, Cell]:
    """Cells named `tensor_max_abs` and so on; only a count of 0 when no element could be compared."""
    if errors is None:
        return {f"{tensor}_compared": 0}
    cells: dict[str, Cell] = {f"{tensor}_{name}": value for name, value in asdict(errors).items()}
    return {**cells, f"{tensor}_worst": json.dumps(errors.worst)}

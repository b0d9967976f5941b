"""What a row says of its case before anything is measured, and how a case that gave nothing becomes a row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

from precision.problem import Case, Problem
from precision.records.columns import BY_NAME
from precision.records.row import Cell, Row, Status
from precision.spec import Spec


def identity_of(problem: Problem, method: str) -> dict[str, Cell]:
    """The cells that the problem and the method's name tell."""
    return {
        "case": Case(problem, method).key,
        "problem": problem.key,
        "method": method,
        "backend": Spec.parse(method).name,
        "inputs": problem.inputs,
        "dtype": problem.dtype,
        "mask": problem.mask,
        "scale": str(problem.scale),
        "seed": problem.seed,
        **asdict(problem.shape),
    }


def hole(cells: Mapping[str, Cell], status: Status, reason: str) -> Row:
    """A row of the identity among the cells, with a reason and nothing measured."""
    identity = {name: cell for name, cell in cells.items() if BY_NAME[name].group == "identity"}
    return Row({**identity, "status": status, "note": reason})

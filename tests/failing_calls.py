"""Calls that fail, and how far their failures reach."""

from torch import Tensor

from precision.numerics.failure import Failure
from precision.numerics.row_hazards import Kernel
from precision.operands import Operands
from precision.stages.presets import find_plan
from precision.zoo.case import zoo

EAGER, FLASH = find_plan("eager"), find_plan("flash")

SHIFTS, UNSHIFTED = Kernel(max_subtraction=True), Kernel(max_subtraction=False)


def case(name: str, dtype: str) -> Operands:
    return zoo.build(name).operands(dtype)


def reach(failure: Failure, stage: str) -> tuple[int, int]:
    """Elements and rows at a later stage."""
    found = [(each.elements, each.rows) for each in failure.spread if each.stage == stage]
    return found[0] if found else (0, 0)


def first_index(hit: Tensor) -> tuple[int, ...]:
    return tuple(hit.nonzero()[0].tolist())

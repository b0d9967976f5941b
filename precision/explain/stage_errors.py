"""The error that some of a plan's roundings make, the others left out."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, get_args

import torch
from torch import Tensor

from precision.errors import UsageError, nearest
from precision.inputs.make import make_inputs, make_upstream
from precision.numerics.reference import attend as attend_exactly
from precision.operands import Operands
from precision.problem import Problem
from precision.stages.backward import attend_backward
from precision.stages.forward import attend
from precision.stages.plan import BACKWARD_STAGES, STAGES, Plan

# Against fp64 attention of the operands before they are rounded, or as a kernel gets them.
Against = Literal["total", "arithmetic"]

_CPU = torch.device("cpu")
_ORDER = tuple(STAGES)
_GIVEN = ("q", "k", "v", "do")  # stages that store what is given
_FAST_EXP = "exp"  # a stage of its own, after `shifted`, where the exponential is approximate
_EXACT_EXP = ("exp", "exp2")
_FOR_BACKWARD = ("lse", *BACKWARD_STAGES)  # stages that out does not depend on


@dataclass(frozen=True)
class Size:
    """The size of an error over all elements that have a finite right value; infinite where the plan's value is not."""

    rms: float
    max: float

    @property
    def mean_square(self) -> float:
        """What adds up over independent errors."""
        return self.rms**2


class StageErrors:
    """Errors of one plan on one problem, by which of its stages are rounded; the order of operations never changes.

    `total` takes the operands and dO before they are rounded, so that the stages q, k, v and do are the input cast;
    `arithmetic` takes them rounded, and a cast to their own dtype is no stage. Heads are pooled. Rows that see no key
    are left out of out and dq. Gradients are those for dO ~ N(0, 1).
    """

    def __init__(
        self,
        problem: Problem,
        plan: Plan,
        error: Against = "total",
        backward: bool = False,
        device: torch.device = _CPU,
    ) -> None:
        """Nothing is computed yet. Raises UsageError on an unknown kind of error."""
        if error not in get_args(Against):
            raise UsageError(f"unknown error {error!r}; {nearest(error, get_args(Against))}")
        self.problem, self.error, self.backward = problem, error, backward
        plan = plan.resolve(problem.dtype)
        if error == "arithmetic" and not plan.rotate:
            plan = plan.without(*(stage for stage in _GIVEN if getattr(plan, stage) == problem.dtype))
        self.plan = plan
        self._device = device
        self._known: dict[frozenset[str], dict[str, Size]] = {}

    @property
    def stages(self) -> tuple[str, ...]:
        """The stages that the plan rounds, in the order of the data path; among them an approximate `exp`."""
        rounded = [stage for stage in self.plan.stages if self.backward or stage not in _FOR_BACKWARD]
        if self.plan.exp not in _EXACT_EXP:
            after = [stage for stage in rounded if _ORDER.index(stage) > _ORDER.index("shifted")]
            rounded.insert(len(rounded) - len(after), _FAST_EXP)
        return tuple(rounded)

    @property
    def tensors(self) -> tuple[str, ...]:
        """What has errors: out, and with the backward pass dq, dk and dv."""
        return ("out", "dq", "dk", "dv") if self.backward else ("out",)

    def of(self, *stages: str) -> dict[str, Size]:
        """The error of each tensor when these stages are rounded and all others exact; computed once for each set.

        Raises UsageError on a stage that the plan does not round, and when the plan cannot compute the problem.
        """
        for stage in stages:
            if stage not in self.stages:
                raise UsageError(f"the plan does not round {stage!r}; {nearest(stage, self.stages)}")
        key = frozenset(stages)
        if key not in self._known:
            found, right = self._run(self._only(stages)), self._right
            self._known[key] = {name: _size(found[name], right[name]) for name in self.tensors}
        return self._known[key]

    def _only(self, stages: tuple[str, ...]) -> Plan:
        plan = self.plan.only(*(stage for stage in stages if stage != _FAST_EXP))
        return plan if _FAST_EXP in stages or _FAST_EXP not in self.stages else replace(plan, exp="exp2")

    def _run(self, plan: Plan) -> dict[str, Tensor]:
        done = attend(plan, self._x)
        return {"out": done.out, **(vars(attend_backward(done, self._do)) if self.backward else {})}

    @cached_property
    def _x(self) -> Operands:
        inputs = make_inputs(self.problem, self._device)
        return inputs.exact if self.error == "total" else inputs.rounded

    @cached_property
    def _do(self) -> Tensor:
        problem = replace(self.problem, dtype="fp64") if self.error == "total" else self.problem
        return make_upstream(problem, self._device)

    @cached_property
    def _right(self) -> dict[str, Tensor]:
        """fp64 values, NaN where none is to be compared."""
        right = attend_exactly(self._x)
        values = {"out": right.out, **(vars(right.backward(self._do)) if self.backward else {})}
        for name in ("out", "dq"):
            if name in values:
                values[name] = values[name].masked_fill(right.masked_rows[..., None], torch.nan)
        return values


def _size(found: Tensor, right: Tensor) -> Size:
    compared = right.isfinite()
    if not compared.any():
        return Size(math.nan, math.nan)
    error = (found - right)[compared].nan_to_num(math.inf, math.inf, -math.inf)
    return Size(float(error.square().mean().sqrt()), float(error.abs().max()))

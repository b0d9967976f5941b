"""What is true of a method that computes another function than the softmax: its own operations in fp64."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

from torch import Tensor

from precision.backends.backend import Backend
from precision.backends.gradient import prepare_gradients
from precision.backends.weighted import Weighted, has_own_reference, in_fp64
from precision.inputs.make import Inputs
from precision.numerics.gradients import Gradients
from precision.numerics.hazards import Hazards
from precision.numerics.reference import Reference
from precision.sweep.truth import Truth


def truth_for(backend: Backend, truth: Truth) -> Truth:
    """The truth that a method is held against: the problem's, or one of its own where the method is no softmax."""
    return OwnTruth(backend, truth) if has_own_reference(backend) else truth


class OwnTruth(Truth):
    """References of the method's own function; what is said of the scores stays that of the problem."""

    def __init__(self, backend: Weighted, common: Truth) -> None:
        super().__init__(common.problem, common._maker)
        self._backend = backend
        self._common = common

    @cached_property
    def inputs(self) -> Inputs:
        return self._common.inputs

    @cached_property
    def arithmetic(self) -> Reference:
        return replace(self._common.arithmetic, out=self._backend.exact(self.inputs.rounded))

    @cached_property
    def total(self) -> Reference:
        return replace(self._common.total, out=self._backend.exact(self.inputs.exact))

    @cached_property
    def upstream(self) -> Tensor:
        return self._common.upstream

    @cached_property
    def gradients(self) -> Gradients:
        x = in_fp64(self.inputs.rounded)
        with prepare_gradients(self._backend, x, self.upstream.double()) as differentiate:
            return differentiate()

    @cached_property
    def hazards(self) -> Hazards:
        return self._common.hazards

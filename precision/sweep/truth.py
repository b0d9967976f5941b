"""What is true of a problem, whoever computes it: inputs, fp64 references, hazards. Made once, when asked for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from precision.formats import Format, find_format
from precision.inputs.make import Inputs, make_inputs, make_upstream
from precision.numerics.gradients import Gradients
from precision.numerics.hazards import Hazards, find_hazards
from precision.numerics.reference import Reference, attend
from precision.problem import Problem
from precision.sweep.bounds import Bounds
from precision.sweep.stopwatch import Stopwatch
from precision.threads import one_thread


@dataclass
class _Last:
    """The reference of the last unrounded inputs."""

    key: str
    reference: Reference


class TruthMaker:
    """Makes truths on one device. The dtypes of a problem share the reference of their unrounded inputs."""

    def __init__(self, device: torch.device, watch: Stopwatch) -> None:
        self._device = device
        self._watch = watch
        self._last: _Last | None = None

    def of(self, problem: Problem) -> Truth:
        """The truth of a problem; nothing is computed yet."""
        return Truth(problem, self)

    def inputs(self, problem: Problem) -> Inputs:
        """Drawn and rounded operands."""
        with self._watch.timing("inputs"), one_thread(self._device):
            return make_inputs(problem, self._device)

    def unrounded(self, problem: Problem, inputs: Inputs) -> Reference:
        """The reference of the operands as drawn, which does not depend on the dtype."""
        key = replace(problem, dtype="fp64").key
        if self._last is None or self._last.key != key:
            self._last = None  # let go of the old one before the new one is made
            self._last = _Last(key, self._attend(inputs, rounded=False))
        return self._last.reference

    def rounded(self, problem: Problem, inputs: Inputs) -> Reference:
        """The reference of the operands as a kernel gets them."""
        if _same(inputs):
            return self.unrounded(problem, inputs)
        return self._attend(inputs, rounded=True)

    def upstream(self, problem: Problem) -> Tensor:
        """The gradient of the output that the backward pass starts from."""
        with self._watch.timing("inputs"), one_thread(self._device):
            return make_upstream(problem, self._device)

    def differentiate(self, right: Reference, upstream: Tensor) -> Gradients:
        """The fp64 backward pass."""
        with self._watch.timing("references"), one_thread(self._device):
            return right.backward(upstream)

    def hazards(self, inputs: Inputs, right: Reference, format: Format) -> Hazards:
        """What the exact scores do to the format."""
        with self._watch.timing("hazards"), one_thread(self._device):
            return find_hazards(inputs.rounded, right, format)

    def _attend(self, inputs: Inputs, *, rounded: bool) -> Reference:
        with self._watch.timing("references"), one_thread(self._device):
            return attend(inputs.rounded if rounded else inputs.exact)


class Truth:
    """Lazy: a problem whose methods are all refused costs no reference."""

    def __init__(self, problem: Problem, maker: TruthMaker) -> None:
        self.problem = problem
        self.format = find_format(problem.dtype)
        self._maker = maker

    @cached_property
    def inputs(self) -> Inputs:
        """Exact and rounded operands."""
        return self._maker.inputs(self.problem)

    @cached_property
    def arithmetic(self) -> Reference:
        """fp64 attention of the rounded operands."""
        return self._maker.rounded(self.problem, self.inputs)

    @cached_property
    def total(self) -> Reference:
        """fp64 attention of the operands before rounding."""
        return self._maker.unrounded(self.problem, self.inputs)

    @cached_property
    def upstream(self) -> Tensor:
        """dO, the gradient of the output, rounded to the dtype."""
        return self._maker.upstream(self.problem)

    @cached_property
    def gradients(self) -> Gradients:
        """fp64 gradients of the rounded operands for the rounded dO."""
        return self._maker.differentiate(self.arithmetic, self.upstream)

    @cached_property
    def bounds(self) -> Bounds:
        """The largest errors of a kernel that rounds every stage to the problem's format, on a part of the problem."""
        return Bounds(self)

    @cached_property
    def hazards(self) -> Hazards:
        """What the exact scores of the rounded operands do to the problem's format."""
        return self._maker.hazards(self.inputs, self.arithmetic, self.format)


def _same(inputs: Inputs) -> bool:
    """Whether rounding changed nothing: fp64 problems, and captured fp32 tensors used in fp32."""
    exact, rounded = inputs.exact, inputs.rounded
    pairs = [(exact.q, rounded.q), (exact.k, rounded.k), (exact.v, rounded.v)]
    if exact.attn_mask is not None and rounded.attn_mask is not None:
        pairs.append((exact.attn_mask, rounded.attn_mask))
    return all(torch.equal(a, b.to(a.dtype)) for a, b in pairs)

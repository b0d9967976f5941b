"""Hypotheses about a fault: each says what the kernel would give if it were so.

A hypothesis is a generator function with one decorator; it yields sentences with the value that they predict for the
tensor at hand, in fp64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from torch import Tensor

from precision.checking.truth import Truth, Values
from precision.numerics.reference import attend
from precision.operands import Operands


@dataclass(frozen=True)
class Evidence:
    """A tensor (out, dq, dk or dv) of a kernel that is not right."""

    truth: Truth
    found: Values
    tensor: str

    @property
    def x(self) -> Operands:
        """The operands of the call."""
        return self.truth.call.x

    @property
    def do(self) -> Tensor:
        """The gradient that the output got."""
        return self.truth.call.do

    @property
    def value(self) -> Tensor:
        """What the kernel gave, in fp64."""
        return self.found[self.tensor].double()

    @property
    def right(self) -> Tensor:
        """What is right, in fp64."""
        return self.truth.values[self.tensor]

    def under(self, mutated: Operands) -> Tensor:
        """The tensor of other operands, whose own shapes may differ in the number of keys."""
        reference = attend(mutated)
        if self.tensor == "out":
            return reference.out
        gradient = getattr(reference.backward(self.do), self.tensor)
        assert isinstance(gradient, Tensor)
        return gradient


Prediction = tuple[str, Tensor]
Predict = Callable[[Evidence], Iterator[Prediction]]

# Of the error of a kernel, what may be left when its fault is known. Where the fault is one of rounding, the order of
# sums decides which elements it hits.
_LEFT, _LEFT_BY_ROUNDING = 1 / 10, 1 / 3


@dataclass(frozen=True)
class Hypothesis:
    """How to predict, and what else must hold for the prediction to be believed."""

    predict: Predict
    everywhere: bool  # where a problem passes that the fault would spoil, it is another one
    left: float  # the largest share of the error that may be left
    conditional: bool  # kernels have it on some of their paths


HYPOTHESES: list[Hypothesis] = []


def hypothesis(
    *, everywhere: bool = False, rounding: bool = False, conditional: bool = False
) -> Callable[[Predict], Predict]:
    """Register a hypothesis: of a fault that spares no problem, of one that rounds, of one under a condition."""

    def register(predict: Predict) -> Predict:
        HYPOTHESES.append(Hypothesis(predict, everywhere, _LEFT_BY_ROUNDING if rounding else _LEFT, conditional))
        return predict

    return register

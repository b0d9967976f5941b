"""Hypotheses about a fault: each says what the kernel would give if it were so.

A hypothesis is a generator function with one decorator; it yields sentences with the value that they predict for the
tensor at hand, in fp64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

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
Hypothesis = Callable[[Evidence], Iterator[Prediction]]

HYPOTHESES: list[Hypothesis] = []


def hypothesis(predict: Hypothesis) -> Hypothesis:
    """Register a hypothesis."""
    HYPOTHESES.append(predict)
    return predict


def with_scale(x: Operands, scale: float) -> Operands:
    """The same call under another scale."""
    return replace(x, scale=scale)

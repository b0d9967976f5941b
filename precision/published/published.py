"""What a published result is: a set-up, an experiment that gives values, and the figures that they are held to."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Literal

from precision.experiments.effort import Effort
from precision.experiments.evidence import Evidence, Value
from precision.experiments.plot import Plot
from precision.registry import Registry

# Where a right value stands: in the publication, in a formula, or in an earlier measurement of the same set-up.
Origin = Literal["published", "theory", "measured before"]


@dataclass(frozen=True)
class Target:
    """The right value of one quantity, and how far from it a measured one may be: by so much, or by such a share."""

    quantity: str
    setting: str
    right: float
    full: float  # tolerance
    quick: float  # tolerance of the quick form, which measures less
    relative: bool = False
    x: float | None = None
    origin: Origin = "published"

    def tolerance(self, effort: Effort) -> float:
        """The largest distance from the right value."""
        share = self.quick if effort.quick else self.full
        return share * abs(self.right) if self.relative else share


@dataclass(frozen=True)
class Comparison:
    """A target with what was measured."""

    target: Target
    measured: float
    tolerance: float

    @property
    def passed(self) -> bool:
        """Whether the measured value is within the tolerance; one that is not finite never is."""
        return abs(self.measured - self.target.right) <= self.tolerance


class Published(ABC):
    """A frozen dataclass; the first line of its docstring is the result, in our words."""

    source: ClassVar[str]  # authors, title, year, and where it is found
    setup: ClassVar[str]
    choices: ClassVar[str]  # what the publication leaves open, and what is chosen here
    plot: ClassVar[Plot | None]  # None where a table says it all

    @abstractmethod
    def measure(self, effort: Effort) -> Iterable[Value]:
        """Run the experiment."""

    @abstractmethod
    def targets(self, effort: Effort) -> Iterable[Target]:
        """The right values of what `measure` gives."""

    def compare(self, seen: Evidence, effort: Effort) -> tuple[Comparison, ...]:
        """Every target with the mean of what was measured."""
        return tuple(
            Comparison(t, seen.mean(t.quantity, t.setting, t.x), t.tolerance(effort)) for t in self.targets(effort)
        )


published: Registry[Published] = Registry("published result", "precision.published.results")

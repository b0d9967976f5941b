"""What a claim is: a sentence, an experiment that gives values, and a predicate on the values."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

from precision.experiments.effort import Effort
from precision.experiments.evidence import Evidence, Value
from precision.experiments.plot import Plot
from precision.registry import Registry

Verdict = Literal["confirmed", "refuted", "conditional"]
Source = Literal["paper", "textbook wisdom", "documentation", "not said elsewhere"]
# In the order in which a reader meets them.
Topic = Literal[
    "the law",
    "saturation",
    "other divisors",
    "number formats",
    "training",
    "other mechanisms",
    "practice",
    "real models",
]


@dataclass(frozen=True)
class Judgement:
    """A verdict and its grounds, sentences with the numbers; `condition` says where a conditional claim holds."""

    verdict: Verdict
    grounds: str
    condition: str = ""

    @property
    def summary(self) -> str:
        """The condition, if any, and the first of the grounds."""
        return f"{self.condition} {self.grounds.partition('. ')[0].rstrip('.')}.".strip()


def decide(holds: bool, grounds: str) -> Judgement:
    """A claim without conditions."""
    return Judgement("confirmed" if holds else "refuted", grounds)


def decide_by_part(parts: dict[str, bool], grounds: str) -> Judgement:
    """A claim that may hold in one circumstance and not in another: the condition is read off the parts."""
    true = [name for name, holds in parts.items() if holds]
    false = [name for name, holds in parts.items() if not holds]
    if true and false:
        return Judgement("conditional", grounds, f"True {' and '.join(true)}; not {' nor '.join(false)}.")
    return decide(not false, grounds)


class Claim(ABC):
    """A frozen dataclass; the first line of its docstring is the claim, in our words."""

    topic: ClassVar[Topic]
    source: ClassVar[Source]
    said: ClassVar[str]  # the figure or the behaviour that the claim leads one to expect
    expected: ClassVar[Verdict]  # the ledger's verdict; another one makes the run fail
    plot: ClassVar[Plot]
    replicates: ClassVar[str] = "seeds"  # what an interval is over

    @abstractmethod
    def measure(self, effort: Effort) -> Iterable[Value]:
        """Run the experiment."""

    @abstractmethod
    def judge(self, seen: Evidence) -> Judgement:
        """The verdict that the values give."""


claims: Registry[Claim] = Registry("claim", "precision.claims.ledger")


def in_order() -> list[str]:
    """The ids of all claims, by topic and then by name."""
    topics = get_args(Topic)
    return sorted(claims.names(), key=lambda id: (topics.index(claims.build(id).topic), id))

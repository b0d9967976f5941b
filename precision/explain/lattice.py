"""The lattice of plausible plans: what a kernel may do on each of six counts, in words and as a plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from precision.errors import UsageError
from precision.stages.plan import Plan
from precision.stages.presets import find_plan


@dataclass(frozen=True)
class Choice:
    """What a kernel does on one count: words, and how Plan says it.

    In the words {dtype} and {opmath} are formats, and {often} is how often O is rounded.

    The options are against a plan that keeps everything in opmath, with the row's maximum and P normalised first.
    """

    words: str
    options: Mapping[str, Any]


def _rounded(*stages: str) -> dict[str, str]:
    return dict.fromkeys(stages, "input")


def _tiles(keys: int) -> Choice:
    options = {"max": "online", "block": keys, "alpha": "opmath"}
    return Choice(f"running max over tiles of {keys} keys", options)


COUNTS: Mapping[str, Mapping[str, Choice]] = {
    "state": {
        "wide": Choice("{opmath} state", {}),
        "narrow": Choice("O rounded to {dtype} {often}", {"pv": "input"}),
    },
    "scores": {
        "wide": Choice("", {}),
        "narrow": Choice("scores rounded to {dtype}", _rounded("s", "scaled", "masked")),
        "once": Choice("scaled scores rounded to {dtype}", _rounded("scaled", "masked")),
    },
    "softmax": {
        "wide": Choice("", {}),
        "narrow": Choice("each step of the softmax rounded to {dtype}", _rounded("m", "shifted", "e", "l")),
    },
    "weights": {
        "whole": Choice("P in {opmath}", {}),
        "normalised": Choice("normalised P rounded to {dtype}", {"weights": "input"}),
        "unnormalised": Choice("unnormalised P rounded to {dtype}", {"normalise": "after", "p": "input"}),
        "truncated": Choice("unnormalised P truncated to {dtype}", {"normalise": "after", "p": "input:truncate"}),
    },
    "exp": {
        "exact": Choice("", {}),
        "poly": Choice("exp by FlashAttention-4's polynomial", {"exp": "poly"}),
        "fast": Choice("exp by torch's fast cubic", {"exp": "fast"}),
    },
    "max": {
        "row": Choice("", {}),
        "none": Choice("no max-subtraction", {"max": "none"}),
        **{f"tiles{keys}": _tiles(keys) for keys in (32, 64, 128, 256, 512)},
    },
    "scale": {
        "after": Choice("", {}),
        "before": Choice("scale on q before the product", {"scale": "before"}),
        "both": Choice("root of the scale on q and k", {"scale": "both"}),
    },
}


@dataclass(frozen=True)
class Point:
    """One choice on every count, by the names in COUNTS."""

    state: str = "wide"
    scores: str = "wide"
    softmax: str = "wide"
    weights: str = "whole"
    exp: str = "exact"
    max: str = "row"
    scale: str = "after"

    @property
    def _choices(self) -> list[Choice]:
        return [choices[getattr(self, count)] for count, choices in COUNTS.items()]

    @property
    def plan(self) -> Plan:
        """Raises UsageError when the choices contradict each other."""
        options: dict[str, Any] = {"scale": "after"}
        for choice in self._choices:
            options |= choice.options
        return replace(find_plan("math"), **options)

    def words(self, dtype: str) -> str:
        """What the plan does, for operands of a dtype."""
        if self == Point():
            return f"{_opmath(dtype)} throughout, rounded to {dtype} once at the end"
        found = [choice.words for choice in self._choices if choice.words]
        often = "after each tile" if self.plan.block else "once, before it is divided by the sum"
        return ", ".join(found).format(dtype=dtype, opmath=_opmath(dtype), often=often)

    def neighbours(self) -> Iterator[Point]:
        """Every point that differs on one count and is a plan."""
        for count, choices in COUNTS.items():
            for name in choices:
                neighbour = replace(self, **{count: name})
                if neighbour != self and neighbour.is_possible:
                    yield neighbour

    @property
    def is_possible(self) -> bool:
        """Whether the choices go together, and each of them can be told from the others by the output."""
        try:
            plan = self.plan
        except UsageError:
            return False
        # Where P is normalised first, one tile holds all keys and O is the output, which is rounded in any case.
        return self.state == "wide" or plan.normalise == "after"


def _opmath(dtype: str) -> str:
    return "fp64" if dtype == "fp64" else "fp32"


# Where known kernels lie, from the plainest on.
STARTS: Mapping[str, Point] = {
    "math": Point(),
    "flash": Point(weights="unnormalised", max="tiles128"),
    "flash-cpu": Point(weights="unnormalised", max="tiles512", exp="fast"),
    "softmax in opmath": Point(scores="narrow", weights="normalised"),
    "math-reduced": Point(scores="narrow", weights="normalised", scale="both"),
    "eager": Point(scores="narrow", softmax="narrow", weights="normalised"),
}

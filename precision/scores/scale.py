"""Scale rules: the number that multiplies q.k. A configuration names a rule or gives the number itself."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from precision.errors import UsageError, nearest
from precision.problem import Shape
from precision.registry import Registry


class ScaleRule(Protocol):
    """A rule that gives the scale for a shape."""

    def value(self, shape: Shape) -> float:
        """The multiplier of q.k."""
        ...


scale_rules: Registry[ScaleRule] = Registry("scale rule", "precision.scores")


def resolve_scale(rule: str | float, shape: Shape) -> float:
    """The multiplier of q.k: the number itself, or what the named rule gives for the shape."""
    return rule if isinstance(rule, float) else scale_rules.build(rule).value(shape)


def canonical_scale(rule: str | float) -> str | float:
    """A number as a float, a rule in its canonical spelling; raises UsageError on anything else."""
    try:
        return float(rule)
    except ValueError:
        pass
    try:
        return scale_rules.canonical(str(rule))
    except UsageError:
        known = scale_rules.names()
        raise UsageError(
            f"unknown scale {rule!r}; {nearest(str(rule), known)} (a rule of {', '.join(known)}, or a number)"
        ) from None


@scale_rules.register("sqrt_dk")
@dataclass(frozen=True)
class SqrtDk:
    """1/sqrt(d_k), which gives logits of independent unit-variance q and k variance 1 (Vaswani et al. 2017)."""

    def value(self, shape: Shape) -> float:
        return 1.0 / math.sqrt(shape.d_k)


@scale_rules.register("none")
@dataclass(frozen=True)
class Unscaled:
    """1: the raw product, whose variance grows as d_k."""

    def value(self, shape: Shape) -> float:
        return 1.0


@scale_rules.register("dk")
@dataclass(frozen=True)
class Dk:
    """1/d_k, as muP uses it (Yang et al. 2022): variance 1/d_k for independent q and k."""

    def value(self, shape: Shape) -> float:
        return 1.0 / shape.d_k


@scale_rules.register("log_dk")
@dataclass(frozen=True)
class LogDk:
    """1/ln d_k: shrinks too little as d_k grows."""

    def value(self, shape: Shape) -> float:
        if shape.d_k < 2:
            raise UsageError("the scale log_dk divides by ln d_k, so it needs d_k of 2 or more")
        return 1.0 / math.log(shape.d_k)


@scale_rules.register("sqrt_dmodel")
@dataclass(frozen=True)
class SqrtDmodel:
    """1/sqrt(d_model) with d_model = q_heads d_k: shrinks more than 1/sqrt(d_k) as soon as there are two heads."""

    def value(self, shape: Shape) -> float:
        return 1.0 / math.sqrt(shape.d_model)

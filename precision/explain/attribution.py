"""Attribution: how much each stage of a plan contributes to its error on a problem.

Three answers, which differ where errors interact: the stage rounded alone, all stages but it rounded, and its Shapley
value. Mean squares of independent errors add up, so shares are shares of the mean square.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import pandas as pd
import torch

from precision.errors import UsageError
from precision.explain.shapley import exact_shapley, sample_shapley
from precision.explain.stage_errors import Against, Size, StageErrors
from precision.problem import Problem
from precision.stages.plan import Plan

# Stages whose mean square alone is this share of the whole plan's, or less, are joined.
_NEGLIGIBLE = 1e-6
OTHERS = "others"
_ALIKE = 0.1  # on other inputs shares that differ by less may be in another order

_CPU = torch.device("cpu")
_MOST_EXACT = 8  # groups, and so 2^8 runs
_ORDERS = 32  # drawn where there are more

Groups = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class Contribution:
    """What the stages of one group contribute to the error of one tensor."""

    tensor: str
    group: str
    stages: tuple[str, ...]
    alone: Size  # these stages are rounded and no other
    without: Size  # all others are
    shapley: float  # what they add to the mean square, over all orders in which stages may be rounded
    share: float  # shapley over the mean square of the whole plan
    share_error: float  # standard error of that; 0 where every order counts


@dataclass(frozen=True)
class Attribution:
    """The contributions of all stages of a plan on a problem."""

    problem: Problem
    plan: Plan  # its formats resolved
    error: Against
    total: Mapping[str, Size]  # of the whole plan, by tensor
    contributions: tuple[Contribution, ...]  # to the tensors that have an error

    @property
    def tensors(self) -> list[str]:
        """The tensors that have an error."""
        return [tensor for tensor, size in self.total.items() if size.mean_square > 0]

    def of(self, tensor: str) -> tuple[Contribution, ...]:
        """The contributions to one tensor, in the order of the data path."""
        return tuple(c for c in self.contributions if c.tensor == tensor)

    def closure(self, tensor: str) -> float:
        """What the groups alone leave unexplained, as a share of the mean square: 1 - sum(alone) / total.

        0 where errors are independent, positive where one enlarges another, negative where they cancel or where one
        rounding leaves the next nothing to round. Shapley values leave nothing.
        """
        return 1.0 - sum(c.alone.mean_square for c in self.of(tensor)) / self.total[tensor].mean_square

    def costliest(self, tensor: str = "out") -> tuple[Contribution, ...]:
        """The group with the largest share, and those whose shares are about the same, the largest first.

        About the same: less by under a tenth, or by under two standard errors of the difference.
        """
        first, *others = sorted(self.of(tensor), key=lambda c: c.share, reverse=True)
        return (first, *(other for other in others if _is_alike(first, other)))

    @property
    def frame(self) -> pd.DataFrame:
        """One line a tensor and group; sizes are alone_rms, alone_max, without_rms and without_max."""
        return pd.json_normalize([asdict(c) for c in self.contributions], sep="_")

    def to_json(self) -> dict[str, Any]:
        """Totals and contributions as plain values."""
        return {
            "error": self.error,
            "total": {tensor: asdict(size) for tensor, size in self.total.items()},
            "closure": {tensor: self.closure(tensor) for tensor in self.tensors},
            "rows": [asdict(contribution) for contribution in self.contributions],
        }


def attribute(
    problem: Problem,
    plan: Plan,
    error: Against = "total",
    backward: bool = False,
    groups: Groups | None = None,
    seed: int = 0,
    device: torch.device = _CPU,
) -> Attribution:
    """Attribute the error of a plan on a problem to groups of its stages, named, in the order of the data path.

    Without `groups` each stage is one of its own, but for those that alone make no more than a thousandth of a tensor's
    root mean square, which for this tensor are the group `others`. Shapley values are exact for up to 8 groups; for
    more they are means over 32 orders drawn from `seed`.

    Raises UsageError when the plan rounds nothing or gives values that are not finite, and on groups that do not
    hold each of its stages once.
    """
    errors = StageErrors(problem, plan, error, backward, device)
    if not errors.stages:
        raise UsageError("the plan rounds nothing, so it makes no error to attribute; round at least one stage")
    total = errors.of(*errors.stages)
    _require_finite(total, problem)
    if groups is not None and sorted(itertools.chain(*groups.values())) != sorted(errors.stages):
        raise UsageError(f"the groups must hold each stage of the plan once: {', '.join(errors.stages)}")
    contributions = [
        contribution
        for tensor in errors.tensors
        if total[tensor].mean_square > 0
        for contribution in _contributions(errors, tensor, groups or _groups_that_matter(errors, tensor), seed)
    ]
    return Attribution(problem, errors.plan, error, total, tuple(contributions))


def _is_alike(first: Contribution, other: Contribution) -> bool:
    unsure = 2 * math.hypot(first.share_error, other.share_error)
    return first.share - other.share < max(_ALIKE * first.share, unsure)


def _require_finite(total: Mapping[str, Size], problem: Problem) -> None:
    for tensor, size in total.items():
        if not math.isfinite(size.rms):
            raise UsageError(f"{tensor} is not finite on {problem}, so no error can be shared out; give smaller inputs")


def _groups_that_matter(errors: StageErrors, tensor: str) -> Groups:
    least = _NEGLIGIBLE * errors.of(*errors.stages)[tensor].mean_square
    groups = {stage: (stage,) for stage in errors.stages if errors.of(stage)[tensor].mean_square > least}
    others = tuple(stage for stage in errors.stages if stage not in groups)
    return {**groups, OTHERS: others} if others else groups


def _contributions(errors: StageErrors, tensor: str, groups: Groups, seed: int) -> list[Contribution]:
    def size(names: frozenset[str]) -> Size:
        return errors.of(*(stage for name in names for stage in groups[name]))[tensor]

    def value(names: frozenset[str]) -> float:
        return size(names).mean_square

    everyone = frozenset(groups)
    if len(groups) <= _MOST_EXACT:
        shares, spreads = exact_shapley(list(groups), value), dict.fromkeys(groups, 0.0)
    else:
        shares, spreads = sample_shapley(list(groups), value, _ORDERS, seed)
    return [
        Contribution(
            tensor, name, stages, size(frozenset({name})), size(everyone - {name}),
            shares[name], shares[name] / value(everyone), spreads[name] / value(everyone),
        )
        for name, stages in groups.items()
    ]  # fmt: skip

"""Rounds the stages of one call, and shows each of them to whoever watches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Generator, Tensor

from precision.stages.plan import STAGES, Plan
from precision.stages.rounding import Rounding


@dataclass(frozen=True)
class Seen:
    """One stage of some rows, or of a whole tensor, before and after it was rounded: float64.

    To be read only, and during the call only: a later stage may take the memory.

    The element [b, h, i, j] of `before` is the element corner + [b, h, i, j] of the stage. Its last dimension counts
    features for q, k, v, do, p V, out and the gradients, tiles for m, alpha and l, and keys for all others.
    """

    stage: str
    before: Tensor  # (batches, heads, rows, columns)
    after: Tensor
    corner: tuple[int, int, int, int]
    rounding: Rounding


Observer = Callable[[Seen], None]


class Rounder:
    """The roundings of a plan whose formats are known, with a stream of random numbers for each stage."""

    def __init__(self, plan: Plan, observe: Observer | None = None) -> None:
        self._plan = plan
        self._roundings = {stage: plan.rounding(stage) for stage in STAGES}
        self._observe = observe
        self._generators: dict[str, Generator] = {}

    def __call__(self, stage: str, x: Tensor, corner: tuple[int, int, int, int] = (0, 0, 0, 0)) -> Tensor:
        """x (float64) as the stage stores it: (B, H, rows, columns), or the (rows, columns) of one head."""
        rounding = self._roundings[stage]
        after = x if rounding.is_exact else rounding.apply(x, self._generator(stage, rounding, x))
        if self._observe is not None:
            lead = (None,) * (4 - x.dim())
            self._observe(Seen(stage, x[lead], after[lead], corner, rounding))
        return after

    def _generator(self, stage: str, rounding: Rounding, x: Tensor) -> Generator | None:
        if rounding.mode != "stochastic":
            return None
        if stage not in self._generators:
            seed = self._plan.seed + 1009 * (1 + list(STAGES).index(stage))  # a prime, so that streams differ
            self._generators[stage] = Generator(x.device).manual_seed(seed)
        return self._generators[stage]

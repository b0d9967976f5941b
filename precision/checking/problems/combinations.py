"""Features in combination: a kernel often takes another path where two of them meet.

Every pair of values of two axes below is met in every dtype. Each dtype has rows of its own, so that a check in three
of them meets most triples, too.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

from torch import Generator

from precision.checking.problems.layouts import LAYOUTS
from precision.checking.problems.problem import CheckProblem, draw_normal, normal
from precision.formats import Format
from precision.operands import Operands
from precision.problem import Shape

_CANDIDATES = 40

Axis = str
Pair = tuple[tuple[Axis, object], tuple[Axis, object]]


@dataclass(frozen=True)
class Combination:
    """One value of each axis."""

    mask: str
    scale: float | None
    heads: tuple[int, int]  # of q, and of k and v
    q_len: int
    kv_len: int
    width: tuple[int, int]  # d_k, d_v
    batch: int
    layout: str

    @property
    def pairs(self) -> set[Pair]:
        """Every two values that meet here."""
        return set(combinations(vars(self).items(), 2))

    def problem(self, dtype: str, number: int) -> CheckProblem:
        """The problem in which they meet."""
        said = [self.mask if self.mask == "causal" else f"mask {self.mask}", f"layout {self.layout}"]
        if self.scale is not None:
            said.append(f"scale {self.scale}")
        return CheckProblem(
            f"pairs-{dtype}-{number}",
            f"features in combination: {', '.join(said)}",
            Shape(self.batch, *self.heads, self.q_len, self.kv_len, *self.width),
            self._draw,
            layout=LAYOUTS[self.layout],
            dtypes=(dtype,),
        )

    def _draw(self, shape: Shape, generator: Generator, format: Format) -> Operands:
        x = replace(draw_normal(shape, generator, format), scale=self.scale)
        if self.mask in ("none", "causal"):
            return replace(x, is_causal=self.mask == "causal")
        heads, q_len = (1, 1) if self.mask == "key padding" else (shape.q_heads, shape.q_len)
        bias = 2 * normal(shape.batch, heads, q_len, shape.kv_len, generator=generator)
        kept = bias < 1.0
        kept[..., 0] = True  # every row sees a key
        return replace(x, attn_mask=bias if self.mask == "additive" else kept)


_AXES: dict[Axis, tuple[Any, ...]] = {
    "mask": ("none", "causal", "bool", "additive", "key padding"),
    "scale": (None, 0.4),
    "heads": ((2, 2), (4, 1), (6, 2), (14, 2)),
    "q_len": (1, 16, 67, 130),
    "kv_len": (1, 16, 67, 130),
    "width": ((32, 32), (64, 64), (40, 24), (128, 128), (72, 200)),
    "batch": (1, 2),
    "layout": tuple(LAYOUTS),
}


def cover_pairs(seed: int) -> Iterator[Combination]:
    """Combinations until every pair is met: each time the candidate that meets most of those that are missing."""
    generator = random.Random(seed)
    missing: set[Pair] = {
        ((one, a), (other, b)) for one, other in combinations(_AXES, 2) for a in _AXES[one] for b in _AXES[other]
    }
    while missing:
        wanted: dict[Axis, Any] = dict(min(missing, key=repr))
        candidates = [
            Combination(**{axis: wanted.get(axis, generator.choice(values)) for axis, values in _AXES.items()})
            for _ in range(_CANDIDATES)
        ]
        best = max(candidates, key=lambda candidate: len(missing & candidate.pairs))
        missing -= best.pairs
        yield best


PROBLEMS = [
    combination.problem(dtype, number)
    for seed, dtype in enumerate(("fp64", "fp32", "fp16", "bf16"))
    for number, combination in enumerate(cover_pairs(seed), 1)
]

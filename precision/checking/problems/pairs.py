"""Rows of values in which every two values of two axes meet: a covering array of strength 2, made greedily.

The idea is that of Cohen, Dalal, Fredman and Patton, "The AETG system" (IEEE Transactions on Software Engineering 23,
1997): each time the candidate that meets most of the pairs that are missing.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

Row = dict[str, Any]
Pair = tuple[tuple[str, Any], tuple[str, Any]]

_ROWS, _CANDIDATES = 200, 40


def cover_pairs(
    axes: Mapping[str, Sequence[Any]], seed: int, is_allowed: Callable[[Row], bool] = lambda row: True
) -> Iterator[Row]:
    """Rows, all of them allowed, until every pair is met. Raises ValueError where a pair is in no allowed row."""
    generator = random.Random(seed)
    missing = {((one, a), (other, b)) for one, other in combinations(axes, 2) for a in axes[one] for b in axes[other]}
    while missing:
        wanted = dict(min(missing, key=repr))
        rows = [
            {axis: wanted.get(axis, generator.choice(values)) for axis, values in axes.items()} for _ in range(_ROWS)
        ]
        allowed = [row for row in rows if is_allowed(row)][:_CANDIDATES]
        if not allowed:
            raise ValueError(f"no allowed row was found with {wanted}")
        best = max(allowed, key=lambda row: len(missing & _pairs(row)))
        missing -= _pairs(best)
        yield best


def _pairs(row: Row) -> set[Pair]:
    return set(combinations(row.items(), 2))

"""The product of independent normal q and k against d_k: its variance and its size."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from precision.experiments.draws import draw_products
from precision.experiments.effort import Effort
from precision.experiments.evidence import Value

WIDTHS = tuple(2**power for power in range(11))  # 1 to 1024
RATIO, STD, SIZE = "variance of q.k / d_k", "standard deviation of q.k", "mean |q.k|"
TOLERANCE = 0.03  # of a variance, three standard errors where the fewest pairs are drawn


def measure_products(effort: Effort) -> tuple[Value, ...]:
    """Every quantity at every width."""
    return _measure(effort.size(2**14, 2**13), tuple(effort.seeds))


@cache
def _measure(fewest: int, seeds: tuple[int, ...]) -> tuple[Value, ...]:
    return tuple(value for d_k in WIDTHS for seed in seeds for value in _sizes(d_k, fewest, seed))


def _sizes(d_k: int, fewest: int, seed: int) -> Iterator[Value]:
    # A narrow product has heavier tails (kurtosis 3 + 6/d_k), and is cheaper to draw.
    s = draw_products(d_k, max(fewest, 2**18 // d_k), seed)
    yield Value(RATIO, "", d_k, seed, float(s.var()) / d_k)
    yield Value(STD, "", d_k, seed, float(s.std()))
    yield Value(SIZE, "", d_k, seed, float(s.abs().mean()))

"""Shapley values: one fair share of a total for each player, whatever the order in which they join.

phi_i is the mean, over all orders of the n players, of v(those before i, and i) - v(those before i); the shares add up
to v(all) - v(none) (Shapley, "A value for n-person games", 1953).
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from itertools import combinations

# Value of a set of players. It is asked for the same set many times, so it should remember.
Value = Callable[[frozenset[str]], float]


def exact_shapley(players: Sequence[str], value: Value) -> dict[str, float]:
    """The share of each player, from the value of all 2^n sets."""
    n = len(players)
    shares = {}
    for player in players:
        others = [other for other in players if other != player]
        shares[player] = sum(
            (value(frozenset({*before, player})) - value(frozenset(before))) / (n * math.comb(n - 1, size))
            for size in range(n)
            for before in combinations(others, size)
        )
    return shares


def sample_shapley(
    players: Sequence[str], value: Value, orders: int, seed: int
) -> tuple[dict[str, float], dict[str, float]]:
    """The share of each player with its standard error, from so many drawn orders (2 or more).

    The shares of each order add up to the total, so those of the mean do, too (Castro, Gomez & Tejada, "Polynomial
    calculation of the Shapley value based on sampling", 2009).
    """
    generator = random.Random(seed)
    gains: dict[str, list[float]] = {player: [] for player in players}
    for _ in range(orders):
        joined: frozenset[str] = frozenset()
        for player in generator.sample(players, len(players)):
            gains[player].append(value(joined | {player}) - value(joined))
            joined |= {player}
    means = {player: math.fsum(gain) / orders for player, gain in gains.items()}
    spreads = {player: math.dist(gain, [means[player]] * orders) for player, gain in gains.items()}
    return means, {player: spread / math.sqrt(orders * (orders - 1)) for player, spread in spreads.items()}

"""Rounding error of sums and products, deterministic and probabilistic, in multiples of the unit roundoff u.

Higham, "Accuracy and Stability of Numerical Algorithms", 2002, section 3.1; Higham & Mary, "A new approach to
probabilistic rounding error analysis", 2019, theorems 2.4 and 3.1.
"""

from __future__ import annotations

import math

from torch import Tensor


def gamma(n: int, u: float) -> float:
    """gamma_n = n u / (1 - n u): the largest relative error that n roundings can build up; infinite from n u = 1 on."""
    return n * u / (1 - n * u) if n * u < 1 else math.inf


def probable_gamma(n: int, u: float, deviations: float) -> float:
    """What takes the place of gamma_n for independent roundings of mean 0: exp(lambda sqrt(n) u + n u^2/(1 - u)) - 1.

    It holds with at least `probability(n, u, deviations)`.
    """
    return math.expm1(deviations * math.sqrt(n) * u + n * u * u / (1 - u))


def probability(n: int, u: float, deviations: float) -> float:
    """1 - 2 n exp(-lambda^2 (1 - u)^2 / 2), or 0: how likely `probable_gamma` holds, at least."""
    return max(0.0, 1 - 2 * n * math.exp(-((deviations * (1 - u)) ** 2) / 2))


def dot_products(
    q: Tensor, k: Tensor, u_sum: float, u_out: float = 0.0, u_in: float = 0.0, deviations: float | None = None
) -> Tensor:
    """The largest error of q k^T, (..., L, S), for q (..., L, d) and k (..., S, d) in float64.

    gamma_d(u_sum) |q|.|k| for the sum, u_out |s| for the rounding of the product, (2 u_in + u_in^2) |q|.|k| for the
    rounding of q and k before; with `deviations` the sum's part is the probable one.
    """
    sizes = q.abs() @ k.abs().mT
    width = q.shape[-1]
    sums = gamma(width, u_sum) if deviations is None else probable_gamma(width, u_sum, deviations)
    return (sums + 2 * u_in + u_in**2) * sizes + u_out * (q @ k.mT).abs()

"""Rounding error of softmax and log-sum-exp, to first order, in multiples of the unit roundoff u.

Blanchard, Higham & Higham, "Accurately computing the log-sum-exp and softmax functions", IMA J. Numer. Anal. 2021, for
n recursive terms, every operation rounded to the same format. `shifted` subtracts the maximum first. Underflow is left
out, as there.
"""

from __future__ import annotations

from torch import Tensor


def softmax_unshifted(n: int) -> float:
    """Relative error of softmax, in the norm of its largest element: n + 3 (theorem 3.3)."""
    return n + 3.0


def softmax_shifted(n: int, spread: Tensor) -> Tensor:
    """The same after the shift: n + 2 + 2 R, for R = xmax - xmin of each row (theorem 4.3)."""
    return n + 2 + 2 * spread


def softmax_shifted_elementwise(n: int, below: Tensor, spread: Tensor) -> Tensor:
    """Relative error of each weight: (xmax - x_j) + R + n + 2, for `below` = xmax - x_j and R = `spread`."""
    return below + spread + n + 2


def log_sum_exp_unshifted(n: int, y: Tensor) -> Tensor:
    """Relative error of y = ln sum exp(x): 1 + (n + 1) / |y| (theorem 3.2)."""
    return 1 + (n + 1) / y.abs()


def log_sum_exp_shifted(n: int, y: Tensor, low: Tensor) -> Tensor:
    """The same after the shift: |y + n - xmin| / |y|, for `low` = xmin (theorem 4.2)."""
    return (y + n - low).abs() / y.abs()


def online_softmax(spread: Tensor, block: int, blocks: int) -> Tensor:
    """Relative error of the sum and of the accumulator of an online softmax: R + b + 3 T.

    T blocks of b keys; each block adds b terms and rescales what was there, three roundings (the factor, the product,
    the addition); an exponential of a shifted score has a relative error of at most R, its distance from the maximum.
    """
    return spread + block + 3 * blocks


def perturbed_weights(ds: Tensor) -> Tensor:
    """||dp||_1 of each row, (...,), to first order, for scores that are off by ds (..., S): max |ds|.

    dp = p (ds - p.ds), and the mean distance of values in [-a, a] from their mean is at most a.
    """
    return ds.abs().amax(-1)


def perturbed_output(v: Tensor, ds: Tensor) -> Tensor:
    """|do_c| of each column, (..., L, d_v), for scores that are off by ds (..., L, S) and v (..., S, d_v).

    Half the range of the column times max |ds|: do is the covariance of v and ds under p.
    """
    half_range = (v.amax(-2) - v.amin(-2)) / 2
    return half_range[..., None, :] * perturbed_weights(ds)[..., None]

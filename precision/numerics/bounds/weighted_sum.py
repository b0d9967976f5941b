"""Rounding error of the product P V."""

from __future__ import annotations

from torch import Tensor

from precision.numerics.bounds.products import gamma


def weighted_sum(
    p: Tensor, v: Tensor, p_error: Tensor, *, u_p: float, u_sum: float, u_out: float, underflow: float = 0.0
) -> Tensor:
    """The largest error of out = p v, (..., L, d_v), for weights p (..., L, S) that are off by at most p_error.

    |dP| |V|, then u_p for their rounding as an operand, gamma_S(u_sum) for the sum, the absolute error `underflow` of
    a weight below the normal numbers, and u_out for the output (Higham 2002, section 3.1).
    """
    size = v.abs()
    relative = u_p + gamma(p.shape[-1], u_sum)
    return (p_error + underflow + relative * p) @ size + u_out * (p @ v).abs()

"""The largest error of a kernel, element by element, from what it rounds.

Scores: Higham, "Accuracy and Stability of Numerical Algorithms", 2002, 3.1. Softmax: Blanchard, Higham & Higham, 2021;
their bounds are of first order in the error of a score, which is not small where scores are large, so that its
exponential is taken here instead. Backward: P is made again from the scores, D = rowsum(dO * O). Products of two errors
are left out elsewhere.
"""

from __future__ import annotations

import torch
from torch import Tensor

from precision.numerics.bounds.matrices import Matrices, Sizes
from precision.numerics.bounds.products import gamma
from precision.numerics.bounds.roundings import Roundings
from precision.numerics.bounds.weighted_sum import weighted_sum

# exp, the sum and the division each round the weights: the textbook softmax.
_WEIGHT_ROUNDINGS = 3
# dP, the division by the row's sum, and the difference dP - D: autograd's way through the textbook softmax.
_SLOPE_ROUNDINGS = 3
# An online softmax adds and rescales; with blocks of one key that is two roundings a key.
_STATE_ROUNDINGS = 2
# The exponential and the weight may each underflow.
_UNDERFLOWS = 2
_LARGEST_EXPONENT = 700.0  # exp of it is still finite


def largest_output_error(call: Matrices, rounded: Roundings) -> Tensor:
    """Of out before its own rounding, (B, Hq, L, d_v)."""
    return _of_output(call, rounded, _of_weights(call, rounded))


def largest_errors(call: Matrices, rounded: Roundings) -> Sizes:
    """Of out, dq, dk and dv, each before its own rounding."""
    p, k, v, do = call.p, call.k, call.v, call.do
    q_len, kv_len = p.shape[-2:]
    error_p = _of_weights(call, rounded)
    error_out = _of_output(call, rounded, error_p)
    slope = _SLOPE_ROUNDINGS * rounded.scores + gamma(v.shape[-1], rounded.sums)
    out = error_out + rounded.operands * call.right.out.abs()
    error_d = slope * call.d_size + (do.abs() * out).sum(-1, keepdim=True)
    centred = (call.dp - call.d).abs()
    ds = p * centred
    error_ds = error_p * centred + (rounded.scores + rounded.operands) * ds
    error_ds = error_ds + (p + error_p) * (slope * call.dp_size + error_d) + _SLOPE_ROUNDINGS * rounded.underflow
    # The scale, the product with it, and the sum with its chunks. In dk and dv the gradients of query heads that share
    # a key head are rounded before they add up.
    own = 2 * rounded.scores + gamma(kv_len, rounded.sums) + rounded.operands * _chunks(kv_len, rounded.key_chunk)
    queries = q_len * call.group
    added = gamma(queries, rounded.sums) + rounded.operands * (1 + _chunks(queries, rounded.query_chunk))
    error_dq = (error_ds + own * ds) @ k.abs()
    error_dk = call.shared((error_ds + (2 * rounded.scores + added) * ds).mT @ call.q_size)
    error_p = error_p + (rounded.operands + added) * p
    error_dv = call.shared(error_p.mT @ do.abs())
    return Sizes(error_out, call.scale * error_dq, call.scale * error_dk, error_dv)


def _chunks(terms: int, length: int) -> int:
    """Roundings of a sum before its last one."""
    return -(-terms // length) - 1 if length and terms else 0


def _of_output(call: Matrices, rounded: Roundings, error_p: Tensor) -> Tensor:
    return weighted_sum(call.p, call.v, error_p, u_p=rounded.operands, u_sum=rounded.sums, u_out=0.0)


def _of_weights(call: Matrices, rounded: Roundings) -> Tensor:
    """Of the weights, (B, Hq, L, S).

    Scores off by e_j multiply p_j by at most exp(e_j) sum_i p_i exp(e_i); no weight is off by more than 1,
    underflow apart.
    """
    kv_len, width = call.p.shape[-1], call.k.shape[-1]
    seen = call.p > 0
    logits = call.logits.where(seen, 0.0)
    shifted = (call.logits - call.right.row_max[..., None]).where(seen, 0.0)
    # The product, the scaled score with its mask, and the shifted score are rounded.
    score = rounded.scores * (2 * logits.abs() + shifted.abs())
    score = score + (rounded.factors + gamma(width, rounded.sums)) * call.products
    of_sum = torch.where(seen, call.p.log() + score, -torch.inf).logsumexp(-1, keepdim=True)
    relative = score + of_sum + _WEIGHT_ROUNDINGS * rounded.scores + _STATE_ROUNDINGS * kv_len * rounded.sums
    error = (call.p * relative.clamp(max=_LARGEST_EXPONENT).expm1()).clamp(max=1.0)
    return error + _UNDERFLOWS * rounded.underflow

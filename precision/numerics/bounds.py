"""What rounding may do to attention and its gradients, to first order, element by element.

Two different questions, both answered from the fp64 weights of a small problem:

`accumulation`: the error of a kernel that keeps scores, state and sums in a format of unit roundoff u and adds one term
after the other. Roundings are independent, |delta| <= u with mean 0 (Higham & Mary, "A new approach to probabilistic
rounding error analysis", 2019), so an error sum c_t delta_t has a standard deviation of at most u sqrt(sum c_t^2 / 3).
A coefficient of an addition is a partial sum; after k of n terms a_j in random order its square is on average
(k/n)^2 (sum a)^2 + (k/n) (1 - k/n) sum a^2, no more than (sum a)^2 + sum a^2. What is returned is sqrt(sum c_t^2).

`first_order`: the largest error of a kernel that rounds every stage (q, k, scores, weights, their sum, dP, D, dS) to
the format, worst case (Higham, "Accuracy and Stability of Numerical Algorithms", 2002, 3.1, for the products;
Blanchard, Higham & Higham, "Accurately computing the log-sum-exp and softmax functions", 2021, for the softmax).
Underflow is left out: a kernel that loses weights to it is beyond this bound, and that is what it is asked for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from precision.numerics.gradients import Gradients
from precision.numerics.reference import Reference
from precision.numerics.scores import Scores

# exp, the sum and the division each round the weights: the textbook softmax.
_WEIGHT_ROUNDINGS = 3
# dP, the division by the row's sum, and the difference dP - D: autograd's way through the textbook softmax.
_SLOPE_ROUNDINGS = 3
# An online softmax adds and rescales; with blocks of one key that is two roundings a key.
_STATE_ROUNDINGS = 2


@dataclass(frozen=True)
class Sizes:
    """One number an element: out (B, Hq, L, d_v), dq (B, Hq, L, d_k), dk (B, Hkv, S, d_k), dv (B, Hkv, S, d_v)."""

    out: Tensor
    dq: Tensor
    dk: Tensor
    dv: Tensor


class Sensitivity:
    """How each element of one call depends on its roundings; holds (B, Hq, L, S) in fp64, so for small problems."""

    def __init__(self, right: Reference, do: Tensor, gradients: Gradients) -> None:
        x = right.operands
        self._group = x.q.shape[1] // x.k.shape[1]
        self._right, self._gradients = right, gradients
        self._scale = abs(x.scale_value)
        self._q, self._do = x.q.double().abs(), do.double()
        self._k, self._v = (t.double().repeat_interleave(self._group, 1) for t in (x.k, x.v))

    @cached_property
    def _logits(self) -> Tensor:
        """(B, Hq, L, S), -inf where a key takes no part."""
        scores = Scores(self._right.operands)
        full = torch.full((*self._q.shape[:3], scores.kv_len), -torch.inf, dtype=torch.float64, device=self._q.device)
        for block in scores.blocks():
            for keys, logits in scores.logits(block):
                full[*block.index, keys] = logits
        return full

    @cached_property
    def _p(self) -> Tensor:
        """The weights P, (B, Hq, L, S)."""
        shift = self._right.row_max.where(self._right.row_max.isfinite(), 0.0)
        total = self._right.row_sum.where(self._right.row_sum != 0, 1.0)
        return (self._logits - shift[..., None]).exp() / total[..., None]

    @cached_property
    def _products(self) -> Tensor:
        """|q|.|k| scale, what the roundings of a score are relative to, (B, Hq, L, S)."""
        return (self._q @ self._k.abs().mT) * self._scale

    @cached_property
    def _dp(self) -> Tensor:
        return self._do @ self._v.mT

    @cached_property
    def _d(self) -> Tensor:
        return (self._do * self._right.out).sum(-1, keepdim=True)

    @cached_property
    def _dp_size(self) -> Tensor:
        return self._do.abs() @ self._v.abs().mT

    @cached_property
    def _d_size(self) -> Tensor:
        return (self._do * self._right.out).abs().sum(-1, keepdim=True)

    def _shared(self, per_query_head: Tensor) -> Tensor:
        """Query heads that share a key head add up."""
        batch, heads, *rest = per_query_head.shape
        return per_query_head.reshape(batch, heads // self._group, self._group, *rest).sum(2)

    def accumulation(self) -> Sizes:
        """sqrt(sum of squared coefficients) of one-after-the-other sums; multiply by u and by lambda."""
        p, k, v, do, out = self._p, self._k, self._v, self._do, self._right.out
        q_len, kv_len = p.shape[-2:]
        score = self._k.shape[-1] * self._products.square()  # variance of a score, in u^2
        # Of ln p: its own score, and the row's sum: kv_len additions and rescalings, and the mean of the scores.
        weight = score + _STATE_ROUNDINGS * kv_len + (p.square() * score).sum(-1, keepdim=True)
        moved = p.square() * score
        variance_out = (
            moved @ v.square() - 2 * out * (moved @ v) + moved.sum(-1, keepdim=True) * out.square()
        ).clamp_min(0.0)
        variance_out += _STATE_ROUNDINGS * kv_len * (2 * out.square() + p.square() @ v.square())
        ds = p * (self._dp - self._d)
        width = v.shape[-1]
        d_error = width * self._d_size.square() + (do.square() * variance_out).sum(-1, keepdim=True)
        ds_error = ds.square() * (weight + kv_len) + p.square() * width * self._dp_size.square()
        row_error = p.mT.square() @ (d_error * self._q.square())
        variance_dq = ds_error @ k.square() + d_error * (p @ k).square()
        variance_dk = self._shared(ds_error.mT @ self._q.square() + row_error)
        variance_dv = self._shared((p.square() * weight).mT @ do.square())
        queries = q_len * self._group
        variance_dk += queries * self._shared(ds.square().mT @ self._q.square())
        variance_dv += queries * self._shared(p.square().mT @ do.square())
        right = self._gradients
        return Sizes(
            variance_out.sqrt(),
            (self._scale**2 * variance_dq + kv_len * right.dq.square()).sqrt(),
            (self._scale**2 * variance_dk + queries * right.dk.square()).sqrt(),
            (variance_dv + queries * right.dv.square()).sqrt(),
        )

    def chunked(self, length: int) -> Sizes:
        """The same for gradients that are added up chunk by chunk, after every `length` queries or keys; out is 0.

        Autograd adds the gradients of the pieces of a tensor in the dtype of the tensor.
        """
        q_len, kv_len = self._p.shape[-2:]
        queries, keys = (math.ceil(n / length) for n in (q_len * self._group, kv_len))
        ds = (self._p * (self._dp - self._d)).square()
        dq = self._scale**2 * (ds @ self._k.square())
        dk = self._scale**2 * self._shared(ds.mT @ self._q.square())
        dv = self._shared(self._p.mT.square() @ self._do.square())
        right = self._gradients
        return Sizes(
            torch.zeros_like(self._right.out),
            (keys * (right.dq.square() + dq)).sqrt(),
            (queries * (right.dk.square() + dk)).sqrt(),
            (queries * (right.dv.square() + dv)).sqrt(),
        )

    def first_order(self, u: float, u_sum: float) -> Sizes:
        """The largest error, to first order, with stages rounded to u and sums to u_sum."""
        p, k, v, do = self._p, self._k, self._v, self._do
        q_len, kv_len = p.shape[-2:]
        seen = p > 0
        logits = self._logits.where(seen, 0.0)
        shifted = (self._logits - self._right.row_max[..., None]).where(seen, 0.0)
        # q and k times sqrt(scale), the product, the scaled score with its mask, the shifted score.
        score = u * (4 * self._products + 2 * logits.abs() + shifted.abs()) + k.shape[-1] * u_sum * self._products
        mean_score = (p * score).sum(-1, keepdim=True)
        weight = score + mean_score + _WEIGHT_ROUNDINGS * u + _STATE_ROUNDINGS * kv_len * u_sum
        error_out = (p * weight) @ v.abs() + (u + kv_len * u_sum) * (p @ v.abs())
        slope = _SLOPE_ROUNDINGS * u + v.shape[-1] * u_sum
        error_d = slope * self._d_size + (do.abs() * error_out).sum(-1, keepdim=True)
        ds = (p * (self._dp - self._d)).abs()
        error_ds = ds * (weight + 2 * u) + p * (slope * self._dp_size + error_d)
        sums = 2 * u + kv_len * u_sum
        query_sums = 2 * u + q_len * self._group * u_sum
        error_dq = error_ds @ k.abs() + sums * (ds @ k.abs())
        error_dk = self._shared((error_ds + query_sums * ds).mT @ self._q)
        error_dv = self._shared((p * (weight + query_sums)).mT @ do.abs())
        return Sizes(error_out, self._scale * error_dq, self._scale * error_dk, error_dv)

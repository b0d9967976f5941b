"""What sums lose that are added up one term after the other: kernels that keep a format, element by element.

Roundings are independent, |delta| <= u with mean 0 (Higham & Mary, "A new approach to probabilistic rounding error
analysis", 2019), so an error sum c_t delta_t has a standard deviation of at most u sqrt(sum c_t^2 / 3). A coefficient
of an addition is a partial sum; after k of n terms a_j in random order its square is on average
(k/n)^2 (sum a)^2 + (k/n) (1 - k/n) sum a^2, no more than (sum a)^2 + sum a^2. What is returned is sqrt(sum c_t^2).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from precision.numerics.bounds.matrices import Matrices, Sizes
from precision.numerics.gradients import Gradients
from precision.numerics.reference import Reference

# An online softmax adds and rescales; with blocks of one key that is two roundings a key.
_STATE_ROUNDINGS = 2


class Sensitivity(Matrices):
    """How each element of one call depends on the roundings of its sums."""

    def __init__(self, right: Reference, do: Tensor, gradients: Gradients) -> None:
        super().__init__(right, do)
        self._gradients = gradients

    def accumulation(self) -> Sizes:
        """sqrt(sum of squared coefficients) of one-after-the-other sums; multiply by u and by lambda."""
        p, k, v, do, out = self.p, self.k, self.v, self.do, self.right.out
        q_len, kv_len = p.shape[-2:]
        score = self.k.shape[-1] * self.products.square()  # variance of a score, in u^2
        # Of ln p: its own score, and the row's sum: kv_len additions and rescalings, and the mean of the scores.
        weight = score + _STATE_ROUNDINGS * kv_len + (p.square() * score).sum(-1, keepdim=True)
        moved = p.square() * score
        variance_out = (
            moved @ v.square() - 2 * out * (moved @ v) + moved.sum(-1, keepdim=True) * out.square()
        ).clamp_min(0.0)
        variance_out += _STATE_ROUNDINGS * kv_len * (2 * out.square() + p.square() @ v.square())
        ds = self.ds
        width = v.shape[-1]
        d_error = width * self.d_size.square() + (do.square() * variance_out).sum(-1, keepdim=True)
        ds_error = ds.square() * (weight + kv_len) + p.square() * width * self.dp_size.square()
        row_error = p.mT.square() @ (d_error * self.q_size.square())
        variance_dq = ds_error @ k.square() + d_error * (p @ k).square()
        variance_dk = self.shared(ds_error.mT @ self.q_size.square() + row_error)
        variance_dv = self.shared((p.square() * weight).mT @ do.square())
        queries = q_len * self.group
        variance_dk += queries * self.shared(ds.square().mT @ self.q_size.square())
        variance_dv += queries * self.shared(p.square().mT @ do.square())
        right = self._gradients
        return Sizes(
            variance_out.sqrt(),
            (self.scale**2 * variance_dq + kv_len * right.dq.square()).sqrt(),
            (self.scale**2 * variance_dk + queries * right.dk.square()).sqrt(),
            (variance_dv + queries * right.dv.square()).sqrt(),
        )

    def chunked(self, length: int) -> Sizes:
        """The same for gradients that are added up chunk by chunk, after every `length` queries or keys; out is 0.

        Autograd adds the gradients of the pieces of a tensor in the dtype of the tensor.
        """
        q_len, kv_len = self.p.shape[-2:]
        queries, keys = (math.ceil(n / length) for n in (q_len * self.group, kv_len))
        ds = self.ds.square()
        dq = self.scale**2 * (ds @ self.k.square())
        dk = self.scale**2 * self.shared(ds.mT @ self.q_size.square())
        dv = self.shared(self.p.mT.square() @ self.do.square())
        right = self._gradients
        return Sizes(
            torch.zeros_like(self.right.out),
            (keys * (right.dq.square() + dq)).sqrt(),
            (queries * (right.dk.square() + dk)).sqrt(),
            (queries * (right.dv.square() + dv)).sqrt(),
        )

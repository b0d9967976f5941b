"""Every weighting as a method, `weighting/linear` or `weighting/soft_cap[cap=30]`; a new one by being there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeGuard

from torch import Tensor

from precision.backends.backend import Attention, Backend, Refused, backends
from precision.numerics.reference import Reference, attend
from precision.operands import Operands
from precision.scores.weighting import Weighting, weightings


class Weighted(Weighting):
    """Attention with another rule for the weights, in plain operations, each rounding to the input dtype.

    Its errors are held against the same rule in fp64, so that they are rounding and not the distance from a softmax.
    """

    # Where there is a softmax, it subtracts the maximum; the others take no exponential of a score.
    max_subtraction = True

    @contextmanager
    def prepare(self, x: Operands) -> Iterator[Attention]:
        if x.is_causal or x.attn_mask is not None:
            raise Refused("a weighting is defined over all keys, and the problem has a mask")
        if x.k.shape[2] == 0:
            raise Refused("kv_len is 0 and weights need a key")
        yield partial(self._solve, x)

    def exact(self, x: Operands) -> Tensor:
        """The method's own function of the operands in fp64, (B, Hq, L, d_v)."""
        with self.prepare(in_fp64(x)) as call:
            return call()

    def _solve(self, x: Operands) -> Tensor:
        group = x.q.shape[1] // x.k.shape[1]
        k, v = (tensor.repeat_interleave(group, 1) for tensor in (x.k, x.v))
        return self.attend(x.q, k, v, x.scale_value).to(x.q.dtype)


def has_own_reference(backend: Backend) -> TypeGuard[Weighted]:
    """Whether the method computes another function than attention's softmax."""
    return isinstance(backend, Weighted) and not backend.is_softmax


def reference_of(backend: Backend, x: Operands) -> Reference:
    """The fp64 reference of what a method computes: attention, or its own function."""
    right = attend(x)
    return replace(right, out=backend.exact(x)) if has_own_reference(backend) else right


def in_fp64(x: Operands) -> Operands:
    """The same numbers in fp64; a weighting takes no mask, so that there is none to convert."""
    return replace(x, q=x.q.double(), k=x.k.double(), v=x.v.double())


def _register(name: str, weighting: type[Weighting]) -> None:
    method = type(weighting.__name__, (Weighted, weighting), {"__doc__": weighting.__doc__, "__module__": __name__})
    backends.register(f"weighting/{name}")(dataclass(frozen=True)(method))


for _name, _weighting in weightings.items():
    _register(_name, _weighting)

"""Derivatives beyond the gradient: whether a backend has them is found out by taking them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace

import torch
from torch import Tensor
from torch.autograd import forward_ad

from precision.backends.backend import Attention, Backend, Refused
from precision.backends.gradient import missing_derivatives_refused
from precision.backends.quiet import import_quietly
from precision.operands import Operands


@contextmanager
def prepare_gradgrad(backend: Backend, x: Operands) -> Iterator[Attention]:
    """A context in which the yielded function computes attention of x and differentiates its gradients once more.

    Raises Absent or Refused as the backend does, and the function raises Refused, with the library's reason, when
    there is no such derivative.
    """
    q, k, v = (tensor.detach().requires_grad_() for tensor in (x.q, x.k, x.v))
    with torch.enable_grad(), backend.prepare(replace(x, q=q, k=k, v=v)) as attend:

        def call() -> Tensor:
            with torch.enable_grad(), missing_derivatives_refused():
                out = attend()
                if not out.requires_grad:
                    raise Refused("the output carries no gradient: the library gives no backward pass")
                gradients = torch.autograd.grad(out.sum(), (q, k, v), create_graph=True)
                if not any(gradient.requires_grad for gradient in gradients):
                    raise Refused("the gradients carry no gradient: the library gives no second backward pass")
                total = torch.stack([gradient.sum() for gradient in gradients]).sum()
                second = torch.autograd.grad(total, (q, k, v), allow_unused=True)
                if any(gradient is None for gradient in second):
                    raise Refused("a gradient does not lead back to every input: no second backward pass")
            return out.detach()

        yield call


@contextmanager
def prepare_jvp(backend: Backend, x: Operands) -> Iterator[Attention]:
    """Likewise, with the derivative along (1, 1, ...) in forward mode."""
    import_quietly("torch._decomp.decompositions_for_jvp")  # which torch itself does at the first dual tensor
    with forward_ad.dual_level():
        q, k, v = (_with_tangent(tensor) for tensor in (x.q, x.k, x.v))
        with missing_derivatives_refused(), backend.prepare(replace(x, q=q, k=k, v=v)) as attend:

            def call() -> Tensor:
                with missing_derivatives_refused():
                    unpacked = forward_ad.unpack_dual(attend())  # type: ignore[no-untyped-call]
                if unpacked.tangent is None:
                    raise Refused("the output carries no tangent: the library gives no forward-mode derivative")
                out: Tensor = unpacked.primal
                return out

            yield call


def _with_tangent(x: Tensor) -> Tensor:
    dual: Tensor = forward_ad.make_dual(x, torch.ones_like(x))  # type: ignore[no-untyped-call]
    return dual


# What inputs may ask of a backend beside the output (`asks`); most ask nothing.
DERIVATIVES: dict[str, Callable[[Backend, Operands], AbstractContextManager[Attention]]] = {
    "gradgrad": prepare_gradgrad,
    "jvp": prepare_jvp,
}


def prepare_asked(backend: Backend, x: Operands, asks: str) -> AbstractContextManager[Attention]:
    """The backend's own context, or that of the derivative that is asked for, a key of DERIVATIVES."""
    return DERIVATIVES[asks](backend, x) if asks else backend.prepare(x)

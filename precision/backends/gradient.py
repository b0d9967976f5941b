"""Gradients of any backend whose output autograd can follow; whether it can is found out, not declared."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor

from precision.backends.backend import Attention, Backend, Refused
from precision.numerics.gradients import Gradients
from precision.operands import Operands

_MISSING = ("is not implemented", "does not currently support")


@contextmanager
def prepare_gradients(backend: Backend, x: Operands, do: Tensor) -> Iterator[Callable[[], Gradients]]:
    """A context in which the yielded function computes attention of x and its gradients for do (B, Hq, L, d_v).

    They come in the dtype of x. The backend's context covers the backward pass too. Raises Absent or Refused as
    the backend does, and the function raises Refused, with the library's reason, when there is no backward pass.
    """
    q, k, v = (tensor.detach().requires_grad_() for tensor in (x.q, x.k, x.v))
    with torch.enable_grad(), backend.prepare(replace(x, q=q, k=k, v=v)) as attend:

        def differentiate() -> Gradients:
            with torch.enable_grad():
                return Gradients(*_grad(attend, (q, k, v), do))

        yield differentiate


@contextmanager
def missing_derivatives_refused() -> Iterator[None]:
    """A context that turns the library's word for a derivative that it lacks into Refused."""
    try:
        yield
    except RuntimeError as error:  # NotImplementedError is one, and autograd and the compiler raise the plain one
        if isinstance(error, NotImplementedError) or any(words in str(error) for words in _MISSING):
            raise Refused(str(error)) from None
        raise


def _grad(attend: Attention, inputs: tuple[Tensor, Tensor, Tensor], do: Tensor) -> tuple[Tensor, ...]:
    with missing_derivatives_refused():
        out = attend()
        if not out.requires_grad:
            raise Refused("the output carries no gradient: the library gives no backward pass")
        return torch.autograd.grad(out, inputs, do)

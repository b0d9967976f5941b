"""The user's function as a kernel: which keywords it takes, how it is called, and how its gradients are taken."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from precision.errors import UsageError
from precision.numerics.gradients import Gradients
from precision.operands import Operands

_KEYWORDS = ("attn_mask", "is_causal", "scale", "enable_gqa")
_NO_BACKWARD = (
    "not implemented",
    "not support",
    "n't support",
    "inplace operation",
    "in-place operation",
    "requires grad",
    "derivative for",
)


class Unsupported(Exception):
    """The kernel does not offer this; the message is the reason."""


class Broken(Exception):
    """The kernel returned something that is no attention output; the message says what."""


@dataclass(frozen=True)
class Kernel:
    """f(q, k, v, attn_mask=None, is_causal=False, scale=None, enable_gqa=False) of tensors (B, H, L, d)."""

    function: Callable[..., Any]
    keywords: frozenset[str]
    required: frozenset[str]

    @classmethod
    def of(cls, function: Callable[..., Any]) -> Kernel:
        """Read the signature; raises UsageError when the function cannot take q, k and v and nothing else."""
        if inspect.isclass(function) and issubclass(function, torch.autograd.Function):
            raise UsageError(f"{_name(function)} is a class; pass {_name(function)}.apply")
        try:
            parameters = list(inspect.signature(function).parameters.values())
        except (TypeError, ValueError):  # a function of a C extension has no signature; torch's SDPA takes them all
            return cls(function, frozenset(_KEYWORDS), frozenset())
        kinds = inspect.Parameter
        positional = [p for p in parameters if p.kind in (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD)]
        if len(positional) < 3 and not any(p.kind is kinds.VAR_POSITIONAL for p in parameters):
            raise UsageError(f"{_name(function)} takes {len(positional)} positional arguments; it must take q, k and v")
        takes_any = any(p.kind is kinds.VAR_KEYWORD for p in parameters)
        rest = [
            p for p in parameters if p not in positional[:3] and p.kind not in (kinds.VAR_POSITIONAL, kinds.VAR_KEYWORD)
        ]
        required = {p.name for p in rest if p.default is kinds.empty}
        if unknown := sorted(required - set(_KEYWORDS)):
            raise UsageError(
                f"{_name(function)} needs the argument {unknown[0]!r}, which a check cannot give; "
                f"it may take {', '.join(_KEYWORDS)} beside q, k and v, and others with a default"
            )
        keywords = set(_KEYWORDS) if takes_any else {p.name for p in rest} & set(_KEYWORDS)
        return cls(function, frozenset(keywords), frozenset(required))

    @property
    def name(self) -> str:
        """What to call it."""
        return _name(self.function)

    @property
    def address(self) -> str:
        """Where to import it from, module:function."""
        return f"{getattr(self.function, '__module__', '?')}:{self.name}"

    @property
    def is_importable(self) -> bool:
        """Whether another process finds it at its address."""
        module = getattr(self.function, "__module__", "__main__")
        return module != "__main__" and getattr(sys.modules.get(module), self.name, None) is self.function

    def forward(self, x: Operands) -> Tensor:
        """Its output (B, Hq, L, d_v); raises Unsupported, Broken, or whatever the kernel raises."""
        with _surviving():
            out = self.function(x.q, x.k, x.v, **self.arguments(x))
        require_output(out, x)
        assert isinstance(out, Tensor)
        return out

    def gradients(self, x: Operands, do: Tensor) -> tuple[Tensor, Gradients]:
        """Its output and dq, dk, dv of sum(do * out), by autograd; raises as `forward` does.

        Unsupported means that there is no way back through the kernel.
        """
        q, k, v = (tensor.detach().requires_grad_() for tensor in (x.q, x.k, x.v))
        try:
            with torch.enable_grad():
                out = self.forward(Operands(q, k, v, x.attn_mask, x.is_causal, x.scale))
                if not out.requires_grad:
                    raise Unsupported("the output carries no gradient")
                with _surviving():
                    found = torch.autograd.grad(out, (q, k, v), do, allow_unused=True)
        except (RuntimeError, NotImplementedError) as error:
            if any(words in str(error) for words in _NO_BACKWARD):
                raise Unsupported(first_line(error)) from None
            raise
        for name, gradient, tensor in zip(("dq", "dk", "dv"), found, (q, k, v), strict=True):
            if gradient is None:
                raise Broken(f"{name} is missing: the output does not depend on {name[1]} for autograd")
            if gradient.dtype != tensor.dtype:
                raise Broken(f"{name} is {gradient.dtype} for inputs in {tensor.dtype}")
        return out.detach(), Gradients(*found)

    def arguments(self, x: Operands) -> dict[str, Any]:
        """The keywords to call it with beside q, k and v; raises Unsupported when it takes one too few."""
        given = x.keywords
        used = {name for name, value in given.items() if value is not None and value is not False}
        if missing := sorted(used - self.keywords):
            raise Unsupported(f"it takes no {missing[0]}")
        # A keyword that is not needed is left out, so that the kernel's own defaults are checked too.
        if "scale" in self.required:
            given["scale"] = x.scale_value
        return {name: given[name] for name in given if name in used | self.required}


def require_output(out: object, x: Operands) -> None:
    """Raise Broken unless it is a tensor of the right shape, dtype and device."""
    if not isinstance(out, Tensor):
        raise Broken(f"it returns {type(out).__name__}, not a tensor")
    wanted = (*x.q.shape[:3], x.v.shape[-1])
    if tuple(out.shape) != wanted:
        raise Broken(f"it returns the shape {tuple(out.shape)} instead of {wanted}")
    if out.dtype != x.q.dtype:
        raise Broken(f"it returns {out.dtype} for inputs in {x.q.dtype}")
    if out.device != x.q.device:
        raise Broken(f"it returns a tensor on {out.device} for inputs on {x.q.device}")


def first_line(error: BaseException) -> str:
    """The first line of what an exception says."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else "no reason was given"


@contextmanager
def _surviving() -> Iterator[None]:
    """For the user's code, which may end the script: that is a fault of the kernel and no end of the check."""
    try:
        yield
    except (Exception, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise Broken(f"it raises {type(error).__name__}: {first_line(error)}") from error


def _name(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__name__", function))

"""torch.compile for a backend: without a silent way back to eager execution."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

import torch

from precision.backends.backend import Absent
from precision.backends.quiet import import_quietly

P = ParamSpec("P")
R = TypeVar("R")


@contextmanager
def compiling(function: Callable[P, R], device: torch.device) -> Iterator[Callable[P, R]]:
    """A context in which the yielded function is compiled when first called, for exactly the shapes that it gets.

    A graph break, an error of the compiler and a recompile limit all raise. What was compiled before is forgotten,
    so that one problem after the other never reaches that limit. Raises Absent where nothing can be compiled.
    """
    import_quietly("torch._inductor.compile_fx")
    from torch._dynamo import config

    if config.disable:
        raise Absent("torch.compile is switched off here (TORCH_COMPILE_DISABLE or TORCHDYNAMO_DISABLE)")
    _require_compiler(device)
    torch.compiler.reset()
    with config.patch(suppress_errors=False):
        yield torch.compile(function, fullgraph=True, dynamic=False)


def _require_compiler(device: torch.device) -> None:
    if device.type == "cpu":
        from torch._inductor.cpp_builder import get_cpp_compiler
        from torch._inductor.exc import InvalidCxxCompiler

        try:
            get_cpp_compiler()
        except InvalidCxxCompiler as error:
            raise Absent(f"torch.compile needs a C++ compiler: {error}") from None
    else:
        from torch.utils._triton import has_triton

        if not has_triton():
            raise Absent("torch.compile needs Triton on a GPU; pip install 'attention-precision[triton]'")

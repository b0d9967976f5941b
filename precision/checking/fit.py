"""Shapes that a kernel takes: one that refuses a problem's shape by an error of its own is checked in another."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from precision.checking.problems import CheckProblem
from precision.checking.refusal import is_refusal
from precision.checking.truth import truth_of
from precision.guard import Guard
from precision.kernel import Kernel
from precision.problem import Shape

_NARROWEST, _BLOCK = 16, 128  # of the matrix instructions, and of the tiles of most kernels


def fit(kernel: Kernel, problem: CheckProblem, dtype: str, device: torch.device) -> CheckProblem:
    """The problem in the first shape that the kernel does not refuse; as it is where it refuses all of them."""
    for shape in (problem.shape, *_shapes(problem.shape)):
        fitted = problem.resized(shape)
        call = truth_of(fitted, dtype, 0, device).call
        guard = Guard(call.tensors)
        try:
            with torch.no_grad():
                kernel.forward(call.x)
        except Exception as error:  # a kernel may raise anything
            if is_refusal(error):
                continue
        finally:
            guard.restore()
        return fitted
    return problem


def _shapes(shape: Shape) -> Iterator[Shape]:
    """Widths of a power of two, as kernels take them that hold a head in registers; then lengths in whole blocks."""
    wide = replace(shape, d_k=_power_of_two(shape.d_k), d_v=_power_of_two(shape.d_v))
    yield wide
    yield replace(wide, q_len=_whole_blocks(shape.q_len), kv_len=_whole_blocks(shape.kv_len))


def _power_of_two(width: int) -> int:
    return max(_NARROWEST, 1 << (width - 1).bit_length())


def _whole_blocks(length: int) -> int:
    return -(-length // _BLOCK) * _BLOCK

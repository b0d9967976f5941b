"""Inputs are shared by all kernels of a process, so what a kernel writes to them is noticed and put back."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from precision.checking.problems import Call


class Guard:
    """Remembers the memory of some calls, bit for bit, the gaps of views and what lies around them too."""

    def __init__(self, calls: Iterable[Call]) -> None:
        self._memory = [_memory(tensor) for call in calls for tensor in _tensors(call)]
        self._kept = [memory.clone() for memory in self._memory]

    def restore(self) -> bool:
        """Put everything back; whether anything had been written."""
        written = False
        for memory, kept in zip(self._memory, self._kept, strict=True):
            if not torch.equal(memory, kept):
                memory.copy_(kept)
                written = True
        return written


def _tensors(call: Call) -> list[Tensor]:
    x = call.x
    return [x.q, x.k, x.v, call.do, *([] if x.attn_mask is None else [x.attn_mask])]


def _memory(tensor: Tensor) -> Tensor:
    """All bytes behind a tensor."""
    return torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage())

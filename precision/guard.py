"""Inputs are shared by all kernels of a process, so what a kernel writes to them is noticed and put back."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor


class Guard:
    """Remembers the memory behind some tensors, bit for bit, the gaps of views and what lies around them too."""

    def __init__(self, tensors: Iterable[Tensor]) -> None:
        self._memory = [_memory(tensor) for tensor in tensors]
        self._kept = [memory.clone() for memory in self._memory]

    def restore(self) -> bool:
        """Put everything back; whether anything had been written."""
        written = False
        for memory, kept in zip(self._memory, self._kept, strict=True):
            if not torch.equal(memory, kept):
                memory.copy_(kept)
                written = True
        return written


def _memory(tensor: Tensor) -> Tensor:
    """All bytes behind a tensor."""
    return torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage())

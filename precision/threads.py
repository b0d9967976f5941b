"""One CPU thread for a while.

On tensors of a few megabytes a second thread gains little, and on a busy machine it costs much: whoever arrives
first spins until the other gets a core.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def one_thread(device: torch.device) -> Iterator[None]:
    """A context in which torch uses one thread on a CPU; on another device nothing changes."""
    if device.type != "cpu":
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)

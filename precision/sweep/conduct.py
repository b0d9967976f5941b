"""How a kernel is to behave while it is called: it leaves its inputs, torch's state and some memory to the others."""

from __future__ import annotations

import resource
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor

from precision.guard import Guard
from precision.torch_state import watch_torch_state

# Of the memory that is free when a kernel is called, what it may take; the rest is for what runs beside it.
_SHARE = 0.9


class Misconduct(Exception):
    """A kernel did what it must not; the message says what."""


@contextmanager
def watched(tensors: Iterable[Tensor], device: torch.device, memory: int | None = None) -> Iterator[None]:
    """A context for the calls of a kernel. What it changes is put back, and raises Misconduct at the end.

    `tensors` are what it must not write to. On a CPU it may allocate `memory` bytes, or most of what is free;
    beyond them its allocations fail.
    """
    guard = Guard(tensors)
    written = False
    try:
        with watch_torch_state() as changed, limited_memory(device, memory):
            yield
            names = changed()
    finally:
        written = guard.restore()
    if written:
        raise Misconduct("the method wrote to its inputs")
    if names:
        raise Misconduct(f"the method changed torch's {names[0]}")


@contextmanager
def limited_memory(device: torch.device, memory: int | None) -> Iterator[None]:
    """A context in which allocations beyond `memory` bytes, most of what is free when None, fail.

    Only on a CPU: the driver of a GPU reserves more than there is.
    """
    if device.type != "cpu":
        yield
        return
    soft, hard = before = resource.getrlimit(resource.RLIMIT_DATA)
    limits = [_held() + (int(_SHARE * _free()) if memory is None else memory), soft, hard]
    resource.setrlimit(resource.RLIMIT_DATA, (min(each for each in limits if each != resource.RLIM_INFINITY), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


def _held() -> int:
    """Bytes of this process that the limit counts: data and stack; see proc(5), statm."""
    return int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()


def _free() -> int:
    """Bytes that can be had without swapping; see proc(5), meminfo."""
    lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    return int(lines["MemAvailable"].split()[0]) * 1024

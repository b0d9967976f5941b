"""Seconds of calls: the first one, the warm ones, and the device's work included in all of them.

On a CPU the clock is torch.utils.benchmark's, on a GPU its events. Nothing else in the package times a kernel.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import TypeVar

import torch
from torch.utils.benchmark import Timer

T = TypeVar("T")
Call = Callable[[], object]

_BLOCK_SECONDS = 0.01  # long beside the clock and the scheduler's ticks, short beside a drift of the machine
_STEADY_CALLS = 3
_STEADY_GAIN = 0.05  # a call that is faster by less than this counts as steady
_WARM_UP_SECONDS = 1.0
_COLD_CALLS = 10


def time_first(call: Callable[[], T], device: torch.device) -> tuple[T, float]:
    """The output of a call and the seconds it took, the device's work included."""
    _synchronize(device)
    start = time.perf_counter()
    out = call()
    _synchronize(device)
    return out, time.perf_counter() - start


def warm_up(call: Call, device: torch.device) -> None:
    """Call until three calls in a row are no longer faster than all before, or for a second; once at least."""
    fastest, steady, spent = float("inf"), 0, 0.0
    while steady < _STEADY_CALLS and spent < _WARM_UP_SECONDS:
        _, seconds = time_first(call, device)
        steady = steady + 1 if seconds > (1 - _STEADY_GAIN) * fastest else 0
        fastest = min(fastest, seconds)
        spent += seconds


def time_block(call: Call, device: torch.device) -> float:
    """Seconds a call, the median over a block of warm calls. On a GPU every call finds a cold L2 cache."""
    if device.type == "cuda":
        return _time_cold_calls(call, device)
    timer = Timer("call()", globals={"call": call}, num_threads=torch.get_num_threads())
    return float(timer.blocked_autorange(min_run_time=_BLOCK_SECONDS).median)


def _time_cold_calls(call: Call, device: torch.device) -> float:
    """The events enclose the call alone; the write before it evicts L2 and lets the host run ahead of the GPU."""
    cache = torch.cuda.get_device_properties(device).L2_cache_size
    eviction = torch.empty(2 * cache, dtype=torch.int8, device=device)
    starts, ends = ([_event() for _ in range(_COLD_CALLS)] for _ in range(2))
    call()
    for start, end in zip(starts, ends, strict=True):
        eviction.zero_()
        start.record()
        call()
        end.record()
    _synchronize(device)
    milliseconds: list[float] = [start.elapsed_time(end) for start, end in zip(starts, ends, strict=True)]
    return median(milliseconds) / 1e3


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)

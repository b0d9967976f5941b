"""One profiled call: its peak memory, and which of torch's attention operators ran."""

from __future__ import annotations

import os
from dataclasses import dataclass

# Kineto otherwise writes two lines to stderr at every start and stop of the profiler.
os.environ.setdefault("KINETO_LOG_LEVEL", "6")

import torch
from torch.profiler import ProfilerActivity, profile

from precision.backends.backend import Attention

# The public function chooses; what it chose is an operator below it.
_CHOOSER = "aten::scaled_dot_product_attention"


@dataclass(frozen=True)
class ProfiledCall:
    """`peak_memory`: bytes that torch's allocators held at most, beyond what they held before.

    `operators`: names as `_scaled_dot_product_flash_attention_for_cpu`; none for a method of plain operations.
    """

    peak_memory: int
    operators: tuple[str, ...]


def profile_call(call: Attention, device: torch.device) -> ProfiledCall:
    """Profile one call. On a CPU the allocation events tell the memory: the size of the process says little of it."""
    before = 0
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=device.type == "cpu") as profiler:
        call()
    assert profiler.profiler is not None and profiler.profiler.kineto_results is not None
    events = profiler.profiler.kineto_results.events()
    names = dict.fromkeys(e.name() for e in events if "attention" in e.name() and e.name() != _CHOOSER)
    operators = tuple(name.removeprefix("aten::") for name in names)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        return ProfiledCall(torch.cuda.max_memory_allocated(device) - before, operators)
    held = peak = 0
    for event in sorted((e for e in events if e.name() == "[memory]"), key=lambda event: event.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return ProfiledCall(peak, operators)


def measure_peak_memory(call: Attention, device: torch.device) -> int:
    """Bytes that one call holds at most."""
    return profile_call(call, device).peak_memory

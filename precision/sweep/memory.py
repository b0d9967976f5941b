"""Peak memory of one call: what torch's allocators held at most, beyond what they held before."""

from __future__ import annotations

import os

# Kineto otherwise writes two lines to stderr at every start and stop of the profiler.
os.environ.setdefault("KINETO_LOG_LEVEL", "6")

import torch
from torch.profiler import ProfilerActivity, profile

from precision.backends.backend import Attention


def measure_peak_memory(call: Attention, device: torch.device) -> int:
    """Bytes. On a CPU from the profiler's allocation events, since the process's size says little about one call."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        call()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        call()
    assert profiler.profiler is not None and profiler.profiler.kineto_results is not None
    events = [event for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]"]
    held = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak

"""Latency of one call: the first apart, then warm samples; the timing itself is torch.utils.benchmark's."""

from __future__ import annotations

import time

import torch
from torch import Tensor
from torch.utils.benchmark import Timer

from precision.backends.backend import Attention

# Six samples are the fewest with a 95 % interval of their median (records/statistics.py); one more for good measure.
_SAMPLES = 7
_AT_LEAST_SECONDS = 0.05


def time_first(call: Attention, device: torch.device) -> tuple[Tensor, float]:
    """The output of a call and the seconds it took, the device's work included."""
    _synchronize(device)
    start = time.perf_counter()
    out = call()
    _synchronize(device)
    return out, time.perf_counter() - start


def sample_latency(call: Attention, device: torch.device) -> list[float]:
    """Warm samples in seconds a call, each the mean of a block long enough for the clock."""
    _, warm = time_first(call, device)
    timer = Timer("call()", globals={"call": call}, num_threads=torch.get_num_threads())
    samples: list[float] = []
    while len(samples) < _SAMPLES:
        samples += timer.blocked_autorange(min_run_time=max(_AT_LEAST_SECONDS, _SAMPLES * warm)).times
    return samples


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)

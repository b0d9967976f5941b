"""Samples of latency: each is a block of calls, and methods that are compared take turns in random order."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext

import torch

from precision.latency.clock import Call, time_block, warm_up

# Six samples are the fewest with a 95 % interval of their median (records/statistics.py); one more for good measure.
_SAMPLES = 7

Prepare = Callable[[], AbstractContextManager[Call]]


def sample_latency(call: Call, device: torch.device) -> list[float]:
    """Warm samples of one call, in seconds."""
    return sample_rounds({"": lambda: nullcontext(call)}, device, rounds=_SAMPLES)[""]


def sample_rounds(
    methods: Mapping[str, Prepare], device: torch.device, *, rounds: int, seed: int = 0
) -> dict[str, list[float]]:
    """Seconds a call by method, one sample a round; samples with the same index were taken next to each other.

    Every round takes the methods in a new random order, so that neither a drift of the machine nor what the
    neighbour leaves in the caches favours one of them. A method's context is open only while it is timed.
    """
    for prepare in methods.values():
        with prepare() as call:
            warm_up(call, device)
    samples: dict[str, list[float]] = {name: [] for name in methods}
    order = list(methods)
    shuffle = random.Random(seed).shuffle
    for _ in range(rounds):
        shuffle(order)
        for name in order:
            with methods[name]() as call:
                samples[name].append(time_block(call, device))
    return samples

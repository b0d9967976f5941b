"""Latency samples of the methods of one task, taken in turns so that what slows the machine slows all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from precision.latency.sample import Prepare, sample_latency, sample_rounds

# Nine rounds: two more than the fewest whose ratios have a 95 % interval within their extremes.
_ROUNDS = 9
# A first call this long has set something up, as compilers do, and every turn would set it up again.
_SET_UP_SECONDS = 1.0


@dataclass(frozen=True)
class Turn:
    """A method that ran once: how to open its context, and what its first call took in seconds."""

    prepare: Prepare
    first: float


def sample_in_turns(methods: Mapping[str, Turn], device: torch.device) -> dict[str, list[float] | Exception]:
    """Seconds a call by method, or what the method raised; the same index is the same round.

    A method with a long set-up is sampled by itself, its context open throughout.
    """
    together = {name: turn.prepare for name, turn in methods.items() if turn.first < _SET_UP_SECONDS}
    found: dict[str, list[float] | Exception] = {}
    try:
        found |= sample_rounds(together, device, rounds=_ROUNDS)
    except Exception:  # some method raised: one by one tells which
        found |= {name: _sample_alone(prepare, device) for name, prepare in together.items()}
    return found | {name: _sample_alone(turn.prepare, device) for name, turn in methods.items() if name not in together}


def _sample_alone(prepare: Prepare, device: torch.device) -> list[float] | Exception:
    try:
        with prepare() as call:
            return sample_latency(call, device)
    except Exception as error:  # any kernel may raise anything, and the run goes on
        return error

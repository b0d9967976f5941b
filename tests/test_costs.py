"""The costs that are measured beside the numbers: latency in turns, and memory."""

import itertools
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
import torch
from measuring import CPU, measured
from torch import Tensor

from precision.backends.backend import Attention, backends
from precision.latency.clock import time_first
from precision.latency.sample import sample_latency
from precision.operands import Operands
from precision.sweep.memory import measure_peak_memory
from precision.sweep.turns import Turn, sample_in_turns


class Counting:
    """Prepared calls of a method that takes a while, sets something up, or fails after some calls."""

    def __init__(self, fails_after: int = 10**9) -> None:
        self.opened = self.called = 0
        self._fails_after = fails_after

    @contextmanager
    def prepare(self) -> Iterator[Attention]:
        self.opened += 1
        yield self.call

    def call(self) -> Tensor:
        self.called += 1
        if self.called > self._fails_after:
            raise MemoryError("no more")
        return torch.zeros(1)


def test_methods_take_turns_and_one_with_a_set_up_does_not() -> None:
    quick, other, compiled = Counting(), Counting(), Counting()
    turns = {
        "quick": Turn(quick.prepare, 0.001),
        "other": Turn(other.prepare, 0.001),
        "compiled": Turn(compiled.prepare, 5.0),
    }
    found = sample_in_turns(turns, CPU)
    assert compiled.opened == 1
    assert quick.opened == other.opened > 7
    assert all(len(found[name]) >= 7 for name in turns)  # type: ignore[arg-type]


def test_a_method_that_fails_while_it_is_timed_takes_nothing_from_the_others() -> None:
    good, bad = Counting(), Counting(fails_after=50)
    found = sample_in_turns({"good": Turn(good.prepare, 0.001), "bad": Turn(bad.prepare, 0.001)}, CPU)
    assert isinstance(found["bad"], MemoryError)
    assert len(found["good"]) >= 7  # type: ignore[arg-type]


def test_latency_is_that_of_the_call() -> None:
    pause = 0.004

    def call() -> Tensor:

        time.sleep(pause)
        return torch.zeros(1)

    _, first = time_first(call, CPU)
    samples = sample_latency(call, CPU)
    assert first >= pause
    assert len(samples) >= 7
    assert min(samples) >= pause  # time.sleep never returns early


def test_the_first_call_alone_holds_what_is_set_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel sleeps in its first call: where that is the one that was timed, no sample has it."""
    pause = 0.02
    called = itertools.count(1)

    @dataclass(frozen=True)
    class SetsUp:
        max_subtraction = True

        @contextmanager
        def prepare(self, x: Operands) -> Iterator[Attention]:
            yield lambda: self.call(x)

        def call(self, x: Operands) -> Tensor:
            if next(called) == 1:
                time.sleep(pause)
            return torch.zeros(*x.q.shape[:3], x.v.shape[-1], dtype=x.q.dtype)

    backends.names()  # discover the others first
    monkeypatch.setitem(backends._classes, "sets-up", SetsUp)
    (row,) = measured("sets-up", latency=True)
    assert float(row.cells["latency_first"]) >= pause  # type: ignore[arg-type]  # time.sleep never returns early
    assert len(json.loads(str(row.cells["latency_samples"]))) >= 7
    assert next(called) > 8


@pytest.mark.parametrize("size", [1000, 250_000])
def test_peak_memory_is_what_the_call_holds_at_once(size: int) -> None:
    x = torch.ones(size)

    def call() -> Tensor:
        kept = x + 1  # 4 size bytes, held to the end
        for _ in range(3):
            kept = kept * 2  # and 4 size more while the product is made
        return kept

    assert measure_peak_memory(call, CPU) == pytest.approx(8 * size, abs=256)

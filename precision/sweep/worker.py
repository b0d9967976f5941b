"""Inside of a worker process: one bench, and what is asked of it. Imports torch when called, not before."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from precision.sweep.parentage import end_with_parent, fall_silent

if TYPE_CHECKING:
    from precision.sweep.config import Config
    from precision.sweep.measure import Bench
    from precision.sweep.stopwatch import Stopwatch
    from precision.sweep.task import Plan


@dataclass(frozen=True)
class Settings:
    """How a worker measures.

    `device`: its name. `folder`: where relative paths begin. `timeout`: seconds for the calls of a case, and as many
    for its latency. `memory`: bytes that a kernel may allocate on a CPU, most of what is free when None.
    """

    device: str = "auto"
    folder: str = "."
    timeout: float = 300.0
    memory: int | None = None


_settings: Settings
_bench: tuple[Bench, Stopwatch] | None = None


def start(settings: Settings, errors: Connection) -> None:
    """Make this process one that ends when its parent does, that the kernel ends first when memory is short, and
    whose output disturbs nobody: stdout goes nowhere and stderr to a file of the parent's.
    """
    global _settings
    _settings = settings
    end_with_parent()
    with suppress(OSError):  # where /proc cannot be written
        Path("/proc/self/oom_score_adj").write_text("1000")  # proc(5): the most willing victim
    fall_silent()
    os.dup2(errors.fileno(), 2)
    with suppress(OSError):  # a worker of a cluster may not have the folder, and may not need it
        os.chdir(settings.folder)


def plan(config: Config) -> Plan:
    """See `make_plan`."""
    from precision.sweep.planning import make_plan

    with ending_at_once():
        return make_plan(config, _settings.device)


def observe() -> tuple[str, str]:
    """The version of the code and the fingerprint of the environment."""
    from precision.records.fingerprint import fingerprint
    from precision.sweep.environment import find_device, observe_environment
    from precision.sweep.planning import CODE

    return CODE, fingerprint(observe_environment(find_device(_settings.device)))


def ask(step: str, *arguments: Any) -> tuple[Any, dict[str, float]]:
    """What a method of the bench gives, and the seconds that it took by part of the work."""
    import torch

    bench, watch = _open_bench()
    with ending_at_once(), torch.no_grad():
        return getattr(bench, step)(*arguments), watch.take()


def _open_bench() -> tuple[Bench, Stopwatch]:
    global _bench
    if _bench is None:
        from precision.sweep.environment import find_device
        from precision.sweep.measure import Bench
        from precision.sweep.stopwatch import Stopwatch

        watch = Stopwatch()
        _bench = Bench(find_device(_settings.device), watch, _settings.memory), watch
    return _bench


@contextmanager
def ending_at_once() -> Iterator[None]:
    """For the user's code: a handler in Python, which cleans up, would wait for a kernel that never returns."""
    handler = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, handler)

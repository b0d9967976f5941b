"""Processes for workers: each a copy of one that has imported torch once, so that a new one is there at once."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext, ForkServerProcess
from threading import Lock
from typing import Any

_STARTING = Lock()


class _Process(ForkServerProcess):
    """A process that does not run the caller's script again, as multiprocessing has it, so no script needs a guard."""

    def start(self) -> None:
        with _STARTING, _without_script():
            with _deaf():
                forkserver.ensure_running()
            super().start()


class _Context(ForkServerContext):
    Process = _Process


@contextmanager
def _without_script() -> Iterator[None]:
    """multiprocessing takes the script from these two names."""
    main = vars(sys.modules["__main__"])
    kept: dict[str, Any] = {name: main[name] for name in ("__spec__", "__file__") if name in main}
    main["__spec__"] = main["__file__"] = None
    try:
        yield
    finally:
        del main["__spec__"], main["__file__"]
        main.update(kept)


@contextmanager
def _deaf() -> Iterator[None]:
    """What is started inside never hears of Ctrl-C, which a terminal sends to everybody: it ends with its parent."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


PROCESSES = _Context()
PROCESSES.set_forkserver_preload(["precision.sweep.preload"])

"""Where the time of a run goes."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Literal

Part = Literal["inputs", "references", "kernels", "errors", "hazards", "store"]


class Stopwatch:
    """Seconds by part of the work, added up over the run."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._start = time.perf_counter()

    @contextmanager
    def timing(self, part: Part) -> Iterator[None]:
        """Add the time inside of the context to a part."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[part] = self.seconds.get(part, 0.0) + time.perf_counter() - start

    def add(self, seconds: Mapping[str, float]) -> None:
        """Add what another stopwatch took."""
        for part, value in seconds.items():
            self.seconds[part] = self.seconds.get(part, 0.0) + value

    def take(self) -> dict[str, float]:
        """The seconds so far, which are then counted from 0 again."""
        taken, self.seconds = self.seconds, {}
        return taken

    def total(self) -> float:
        """Seconds since the stopwatch was made."""
        return time.perf_counter() - self._start

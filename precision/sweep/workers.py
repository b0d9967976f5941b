"""Who measures: processes on this machine, or the workers of a Dask cluster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from precision.errors import UsageError
from precision.sweep.config import Config
from precision.sweep.task import Batch, Job, Plan
from precision.sweep.worker import Settings


class Workers(Protocol):
    """A plan and the rows of its jobs, in the order in which they are there."""

    def plan(self, config: Config) -> Plan:
        """See `make_plan`."""
        ...

    def measure(self, jobs: Sequence[Job]) -> Iterator[Batch]:
        """The rows of every job; no case runs beside one whose latency is sampled on the same device."""
        ...


def open_workers(jobs: int, scheduler: str | None, settings: Settings) -> AbstractContextManager[Workers]:
    """Workers that end with the context; raises UsageError when a number or an address makes no sense."""
    if jobs < 1:
        raise UsageError(f"jobs is {jobs}; it must be 1 or more")
    if scheduler is None:
        from precision.sweep.local import LocalWorkers

        return LocalWorkers(jobs, settings)
    if jobs != 1:
        raise UsageError("jobs counts workers on this machine, and a scheduler has its own; leave one of the two out")
    from precision.sweep.cluster import ClusterWorkers

    return ClusterWorkers(scheduler, settings)

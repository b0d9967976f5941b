"""Workers of a Dask cluster. Each isolates its kernels in a process of its own, as a worker on this machine does."""

from __future__ import annotations

import logging
import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, as_completed
from contextlib import contextmanager, suppress
from multiprocessing.util import Finalize
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from precision.errors import UsageError
from precision.records.fingerprint import fingerprint
from precision.sweep.config import Config
from precision.sweep.event_loop import event_loop
from precision.sweep.isolation import IsolatedBench
from precision.sweep.task import Batch, Job, Plan, Work, split
from precision.sweep.worker import Settings

if TYPE_CHECKING:
    from distributed import Client

# The resource that a worker offers when it is the one that samples latencies on its device.
RESOURCE = "device"
_CONNECT_SECONDS = 10


class ClusterWorkers:
    """The workers of the scheduler at an address. Rows come a job at a time, and a job whose worker died is done again.

    Captured tensors and kernels reach the workers by path, relative ones from the folder of the run. Raises
    UsageError when the scheduler does not answer, has no worker, or none that offers RESOURCE to a job that needs it.
    """

    def __init__(self, address: str, settings: Settings) -> None:
        self._settings = settings
        logging.getLogger("distributed.client").setLevel(logging.CRITICAL)  # what it logs is said in a sentence
        try:
            from distributed.comm.addressing import get_address_host_port

            get_address_host_port(address)  # raises ValueError, after which Dask would leave a client half closed
            self._client = connect(address=address, timeout=_CONNECT_SECONDS)
        except ImportError:
            raise UsageError("a scheduler needs Dask; pip install 'attention-precision[dask]'") from None
        except (OSError, ValueError) as error:
            raise UsageError(f"no Dask scheduler answers at {address!r}: {error}") from None
        self._address = address

    def __enter__(self) -> ClusterWorkers:
        return self

    def __exit__(self, error: object, *_: object) -> None:
        if error is None:  # who interrupts does not wait for others
            self._client.run(_end_idle, on_error="ignore")
        self._client.close(timeout=1)

    def plan(self, config: Config) -> Plan:
        """See `make_plan`; one of the workers makes it."""
        self._require_workers(lambda resources: True, "has no worker")
        with self._mending():
            plan: Plan = self._client.get_executor(pure=False).submit(_plan, self._settings, config).result()
        self._expected = plan.code, fingerprint(plan.environment)
        return plan

    def measure(self, jobs: Sequence[Job]) -> Iterator[Batch]:
        """The rows of every job; those with latencies come last, and only to workers that offer RESOURCE."""
        untimed, timed = split(jobs)
        if timed:
            self._require_workers(
                lambda resources: resources.get(RESOURCE, 0) >= 1,
                f"has no worker for latencies; start one a device with --resources {RESOURCE}=1",
            )
        yield from self._measure(untimed)
        yield from self._measure(timed, resources={RESOURCE: 1})

    def _measure(self, jobs: Sequence[Job], **wanted: Any) -> Iterator[Batch]:
        executor = self._client.get_executor(pure=False, **wanted)
        count = len(self._client.scheduler_info(n_workers=-1)["workers"])
        futures = [executor.submit(_measure, self._settings, job, self._expected) for job in jobs]
        with self._mending():
            for future in as_completed(futures):
                yield from (batch.among(count) for batch in future.result())

    @contextmanager
    def _mending(self) -> Iterator[None]:
        from distributed.scheduler import KilledWorker

        try:
            yield
        except KilledWorker as error:
            raise UsageError(f"workers of {self._address!r} end before they can answer: {error}") from None
        except CancelledError:
            raise UsageError(f"the Dask scheduler at {self._address!r} is gone; start the run again to go on") from None

    def _require_workers(self, serves: Callable[[dict[str, float]], bool], lack: str) -> None:
        workers = self._client.scheduler_info(n_workers=-1)["workers"].values()
        if not any(serves(each["resources"]) for each in workers):
            raise UsageError(f"the Dask scheduler at {self._address!r} {lack}")


def connect(**where: Any) -> Client:
    """A client of the scheduler that is named as `distributed.Client` takes it.

    It is given a loop that runs. Of one that it starts itself it asserts that it runs within ten seconds, which may be
    too few on a busy machine.
    """
    from distributed import Client

    return Client(**where, loop=event_loop(), set_as_default=False)


# In a worker of the cluster: benches that wait for their next job. Each has its process, which ends with this one.
_idle: dict[Settings, SimpleQueue[IsolatedBench]] = {}


def _end_idle() -> None:
    for benches in _idle.values():
        with suppress(Empty):
            while True:
                benches.get_nowait().close()


def _plan(settings: Settings, config: Config) -> Plan:
    with _Borrowed(settings) as bench:
        return bench.plan(config)


def _measure(settings: Settings, job: Job, expected: tuple[str, str]) -> list[Batch]:
    with _Borrowed(settings) as bench:
        bench.require(*expected)
        return [_measure_work(bench, work) for work in job]


def _measure_work(bench: IsolatedBench, work: Work) -> Batch:
    """All rows of a task together, for they arrive together."""
    rows = tuple(bench.measure(work.task, work.known))
    return Batch(work.index, rows, bench.watch.take())


class _Borrowed:
    """A context with a bench that nobody else uses meanwhile."""

    def __init__(self, settings: Settings) -> None:
        # Dask's workers are daemons by default, to which multiprocessing denies children.
        multiprocessing.current_process().daemon = False
        self._idle = _idle.setdefault(settings, SimpleQueue())
        try:
            self._bench = self._idle.get_nowait()
        except Empty:
            self._bench = IsolatedBench(settings)
            Finalize(None, self._bench.close, exitpriority=1)  # or multiprocessing would wait for its process

    def __enter__(self) -> IsolatedBench:
        return self._bench

    def __exit__(self, *_: object) -> None:
        self._idle.put(self._bench)

"""Workers on this machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue

from precision.sweep.config import Config
from precision.sweep.isolation import IsolatedBench
from precision.sweep.measurer import measure_job
from precision.sweep.task import Batch, Job, Plan, split
from precision.sweep.worker import Settings


class LocalWorkers:
    """Processes on this machine, each of which measures one job at a time. Their rows come as soon as they are there.

    Kernels get as many threads in each as they would get alone: the number of threads can change bits.
    """

    def __init__(self, count: int, settings: Settings) -> None:
        self._benches = [IsolatedBench(settings) for _ in range(count)]

    def __enter__(self) -> LocalWorkers:
        return self

    def __exit__(self, *_: object) -> None:
        with ThreadPoolExecutor(len(self._benches)) as executor:
            executor.map(IsolatedBench.close, self._benches)

    def plan(self, config: Config) -> Plan:
        """See `make_plan`."""
        return self._benches[0].plan(config)

    def measure(self, jobs: Sequence[Job]) -> Iterator[Batch]:
        """The rows of every job; those with latencies come last, and one after the other by one worker alone."""
        untimed, timed = split(jobs)
        yield from self._measure(untimed, self._benches)
        yield from self._measure(timed, self._benches[:1])

    def _measure(self, jobs: Sequence[Job], benches: Sequence[IsolatedBench]) -> Iterator[Batch]:
        idle: SimpleQueue[IsolatedBench] = SimpleQueue()
        heard: SimpleQueue[Batch | Future[None]] = SimpleQueue()
        for bench in benches:
            idle.put(bench)

        def work(job: Job) -> None:
            bench = idle.get()
            try:
                for batch in measure_job(bench, job):
                    heard.put(batch)
            finally:
                idle.put(bench)

        executor = ThreadPoolExecutor(len(benches))
        try:
            left = len(jobs)
            for job in jobs:
                executor.submit(work, job).add_done_callback(heard.put)
            while left:
                if isinstance(item := heard.get(), Batch):
                    yield item.among(len(benches))
                else:
                    item.result()
                    left -= 1
        finally:
            executor.shutdown(wait=False, cancel_futures=True)

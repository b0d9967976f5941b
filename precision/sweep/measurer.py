"""From a task to its rows, whoever measures: in this process (`Bench`) or in one of its own (`IsolatedBench`)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping

from precision.problem import Case, Problem
from precision.records.row import Row
from precision.sweep.stopwatch import Stopwatch
from precision.sweep.task import Batch, Job, Task


class Measurer(ABC):
    """Measures tasks, one after the other; `watch` tells where its time went."""

    def __init__(self, watch: Stopwatch) -> None:
        self.watch = watch

    @abstractmethod
    def measure_case(self, problem: Problem, method: str, backward: bool) -> Row:
        """The row of a case but for its warm latency: errors, incidence, cost; or a hole with its reason."""

    @abstractmethod
    def sample(self, task: Task, rows: list[Row]) -> list[Row]:
        """The rows of a task, one a method, with latency samples where they are ok."""

    def measure(self, task: Task, known: Mapping[str, Row]) -> Iterator[Row]:
        """The rows of a task, one a method. A row in `known` (by case) is taken over; only its latency is new.

        Rows come one by one, or all at the end when their latencies are sampled in turns.
        """
        rows = (task.name(self._row(task, method, known)) for method in task.methods)
        yield from self.sample(task, list(rows)) if task.latency else rows

    def _row(self, task: Task, method: str, known: Mapping[str, Row]) -> Row:
        row = known.get(Case(task.problem, method).key)
        if row is None or not task.is_answered_by(row):
            return self.measure_case(task.problem, method, task.backward)
        return row


def measure_job(bench: Measurer, job: Job) -> Iterator[Batch]:
    """The rows of a job, each as soon as it is there; those of a task with latencies together."""
    for work in job:
        rows = bench.measure(work.task, work.known)
        for together in [tuple(rows)] if work.task.latency else ((row,) for row in rows):
            yield Batch(work.index, together, bench.watch.take())

"""What a run is made of: its plan, the work that is handed out, and the rows that come back. Imports no torch."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from precision.problem import Problem
from precision.records.row import Row, Status


@dataclass(frozen=True)
class Task:
    """One problem with all its methods: inputs and references are made once for it."""

    sweep: str
    problem: Problem
    methods: tuple[str, ...]
    backward: bool
    latency: bool
    source: str = ""  # for captured inputs, the module that made the call

    def is_answered_by(self, row: Row) -> bool:
        """Whether a row of one of its cases says all that the task asks for, latencies excepted."""
        return row.status is not Status.OK or not self.backward or "backward" in row.cells

    def name(self, row: Row) -> Row:
        """The row of one of its cases, as a row of the task."""
        return Row({**row.cells, "sweep": self.sweep, "source": self.source})


@dataclass(frozen=True)
class Plan:
    """Every task of a run, and the code and the environment in which they are measured.

    `revisions`: by method, the digest of the file that holds a kernel of the user's own.
    """

    tasks: tuple[Task, ...]
    code: str
    environment: Mapping[str, Any]
    revisions: Mapping[str, str]


@dataclass(frozen=True)
class Work:
    """A task with the methods that are still wanted, and its number in the plan.

    `known`: by case, rows of earlier runs of which only the latency is measured.
    """

    index: int
    task: Task
    known: Mapping[str, Row]


# What one worker does in one go: tasks that share their unrounded inputs, and so one of the references.
Job = tuple[Work, ...]


@dataclass(frozen=True)
class Batch:
    """Rows of one task that are kept together: one, or all when they come together or their latencies do.

    `seconds`: by part of the work, what was spent since the worker's last batch.
    """

    index: int
    rows: tuple[Row, ...]
    seconds: Mapping[str, float]

    def among(self, workers: int) -> Batch:
        """The same of one of several workers, its seconds as parts of the time that passes for all of them."""
        return replace(self, seconds={part: value / workers for part, value in self.seconds.items()})


def group(works: Iterable[Work]) -> list[Job]:
    """Works that follow each other and share their unrounded inputs, together."""
    return [
        tuple(job)
        for _, job in itertools.groupby(
            works, lambda work: (work.task.latency, replace(work.task.problem, dtype="fp64"))
        )
    ]


def split(jobs: Iterable[Job]) -> tuple[list[Job], list[Job]]:
    """Jobs without latencies, and those with them."""
    halves: tuple[list[Job], list[Job]] = [], []
    for job in jobs:
        halves[job[0].task.latency].append(job)
    return halves

"""What is left of a plan: what the run has, and what earlier runs measured, is not measured again. Imports no torch."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from precision.problem import Case
from precision.records.row import Row
from precision.sweep.task import Batch, Plan, Work

# Works that are looked up together. Their rows are in memory at the same time: a few megabytes.
_TOGETHER = 250


@dataclass(frozen=True)
class Reused:
    """Rows of earlier runs that are rows of this one, too, and the works that are left beside them."""

    batches: list[Batch]
    left: list[Work]


def wanted(plan: Plan, kept: Mapping[tuple[str, str], str]) -> list[Work]:
    """The cases of a plan that the run has no row of, by task; all of a task whose latencies are sampled together.

    `kept`: see `Rows.kept`. A row of another revision of a user's kernel counts as none.
    """
    works = []
    for index, task in enumerate(plan.tasks):
        missing = tuple(
            method
            for method in task.methods
            if kept.get((task.sweep, Case(task.problem, method).key)) != plan.revisions[method]
        )
        if missing:
            methods = task.methods if task.latency else missing  # samples of one index belong together
            works.append(Work(index, replace(task, methods=methods), {}))
    return works


def reuse(
    works: Sequence[Work], known: Callable[[Collection[str]], Mapping[str, Row]], revisions: Mapping[str, str]
) -> Iterator[Reused]:
    """Some works at a time, with what earlier runs have for them.

    `known`: the rows of some cases, by key. A row that lacks what its task asks for is no answer; one whose latency is
    to be sampled goes with its work.
    """
    for first in range(0, len(works), _TOGETHER):
        some = works[first : first + _TOGETHER]
        rows = known([Case(work.task.problem, method).key for work in some for method in work.task.methods])
        reused = Reused([], [])
        for work in some:
            answers = {
                method: row
                for method in work.task.methods
                if (row := rows.get(Case(work.task.problem, method).key)) is not None
                and row.cells.get("revision", "") == revisions[method]
                and work.task.is_answered_by(row)
            }
            if work.task.latency:
                reused.left.append(replace(work, known={str(row.cells["case"]): row for row in answers.values()}))
                continue
            if answers:
                named = tuple(work.task.name(row) for row in answers.values())
                reused.batches.append(Batch(work.index, named, {}))
            if methods := tuple(method for method in work.task.methods if method not in answers):
                reused.left.append(replace(work, task=replace(work.task, methods=methods)))
        yield reused

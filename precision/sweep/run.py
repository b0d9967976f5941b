"""A run: every task of a configuration measured, every row kept as soon as it is there. Imports no torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from precision.problem import Case
from precision.records.row import Row
from precision.records.store import DEFAULT_STORE, Store
from precision.records.writing import RunWriter
from precision.sweep.config import parse_config, read_config_text
from precision.sweep.stopwatch import Stopwatch
from precision.sweep.task import Plan, Work, group
from precision.sweep.worker import Settings
from precision.sweep.workers import open_workers


@dataclass(frozen=True)
class Progress:
    """What a run tells while it goes."""

    done: int
    cases: int
    row: Row


Listener = Callable[[Progress], None]


def run(
    config: str = "default",
    *,
    device: str = "auto",
    store: Path = DEFAULT_STORE,
    fresh: bool = False,
    jobs: int = 1,
    scheduler: str | None = None,
    timeout: float = Settings.timeout,
) -> pd.DataFrame:
    """Measure every case of a configuration and give its rows; see `execute`, and `precision list columns`."""
    number = execute(config, device=device, store=store, fresh=fresh, jobs=jobs, scheduler=scheduler, timeout=timeout)
    with Store(store) as kept:
        return kept.frame(number)


def execute(
    config: str,
    *,
    device: str = "auto",
    store: Path = DEFAULT_STORE,
    fresh: bool = False,
    jobs: int = 1,
    scheduler: str | None = None,
    timeout: float = Settings.timeout,
    listener: Listener = lambda progress: None,
) -> int:
    """Measure every case of a configuration (a name that ships, or a TOML file) and give the number of the run.

    A run of the same that was stopped goes on. A case that the same code measured in the same environment is taken
    from the store, its latency excepted; `fresh` measures it anew. Kernels run in `jobs` processes of their own, with
    torch as it is when it has just been imported, or on the workers of a Dask scheduler at `scheduler`. Raises
    UsageError when the configuration, the store or the scheduler cannot be used.
    """
    watch = Stopwatch()
    text = read_config_text(config)
    settings = parse_config(text)
    worker = Settings(device=device, folder=str(Path.cwd()), timeout=timeout)
    with open_workers(jobs, scheduler, worker) as workers:
        plan = workers.plan(settings)
        name = Path(config).stem
        with (
            Store(store) as kept,
            RunWriter(kept, name, settings.title, text, plan.code, plan.environment, fresh=fresh) as writer,
        ):
            known = {} if fresh else kept.known_rows(plan.code, plan.environment)
            works = list(_works(plan, writer.kept, known))
            places = _places(plan)
            cases = sum(len(task.methods) for task in plan.tasks)
            done = cases - sum(len(work.task.methods) for work in works)
            for batch in workers.measure(group(works)):
                watch.add(batch.seconds)
                with watch.timing("store"):
                    writer.add({places[batch.index][str(row.cells["method"])]: row for row in batch.rows})
                for row in batch.rows:
                    done += 1
                    listener(Progress(done, cases, row))
            writer.finish({**watch.seconds, "wall": watch.total()})
    return writer.number


def _works(plan: Plan, kept: Mapping[tuple[str, str], str], known: Mapping[str, Row]) -> Iterator[Work]:
    """What is left to do. A row of another revision of a user's kernel counts as none."""
    for index, task in enumerate(plan.tasks):
        cases = {method: Case(task.problem, method).key for method in task.methods}
        wanted = tuple(
            method for method, case in cases.items() if kept.get((task.sweep, case)) != plan.revisions[method]
        )
        if wanted and task.latency:  # samples of one index belong together
            wanted = task.methods
        if wanted:
            rows = {case: known[case] for method, case in cases.items() if _is_usable(known.get(case), plan, method)}
            yield Work(index, replace(task, methods=wanted), rows)


def _is_usable(row: Row | None, plan: Plan, method: str) -> bool:
    return row is not None and row.cells.get("revision", "") == plan.revisions[method]


def _places(plan: Plan) -> list[dict[str, int]]:
    """By task and method, the number of the case in the plan."""
    places = []
    first = 0
    for task in plan.tasks:
        places.append({method: first + number for number, method in enumerate(task.methods)})
        first += len(task.methods)
    return places

"""A run: every task of a configuration measured, every row kept as soon as it is there. Imports no torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pandas as pd

from precision.records.row import Row
from precision.records.store import DEFAULT_STORE, Store
from precision.records.writing import RunWriter
from precision.sweep.config import parse_config, read_config_text
from precision.sweep.reuse import reuse, wanted
from precision.sweep.stopwatch import Stopwatch
from precision.sweep.task import Batch, Plan, group
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
        return kept.rows.frame(number)


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
            works = wanted(plan, writer.kept)
            places = _places(plan)
            cases = sum(len(task.methods) for task in plan.tasks)
            done = cases - sum(len(work.task.methods) for work in works)

            def keep(batches: Sequence[Batch]) -> None:
                nonlocal done
                rows = {places[batch.index][str(row.cells["method"])]: row for batch in batches for row in batch.rows}
                with watch.timing("store"):
                    writer.add(rows)
                for row in rows.values():
                    done += 1
                    listener(Progress(done, cases, row))

            if not fresh:
                known = partial(kept.rows.known, code=plan.code, environment=plan.environment)
                works, candidates = [], works
                for reused in reuse(candidates, known, plan.revisions):
                    keep(reused.batches)
                    works += reused.left
            for batch in workers.measure(group(works)):
                watch.add(batch.seconds)
                keep([batch])
            writer.finish({**watch.seconds, "wall": watch.total()})
    return writer.number


def _places(plan: Plan) -> list[dict[str, int]]:
    """By task and method, the number of the case in the plan."""
    places = []
    first = 0
    for task in plan.tasks:
        places.append({method: first + number for number, method in enumerate(task.methods)})
        first += len(task.methods)
    return places

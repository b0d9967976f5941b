"""A run: every task of a configuration measured, every row kept as soon as it is there."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import torch

from precision.errors import UsageError
from precision.records.row import Row
from precision.records.store import DEFAULT_STORE, Store
from precision.sweep.config import parse_config, read_config_text
from precision.sweep.environment import code_version, find_device, observe_environment
from precision.sweep.grid import Task, plan
from precision.sweep.measure import Bench
from precision.sweep.stopwatch import Stopwatch


@dataclass(frozen=True)
class Progress:
    """What a run tells while it goes."""

    done: int
    cases: int
    row: Row


Listener = Callable[[Progress], None]


def run(
    config: str = "default", *, device: str = "auto", store: Path = DEFAULT_STORE, fresh: bool = False
) -> pd.DataFrame:
    """Measure every case of a configuration and give its rows; see `execute`, and `precision list columns`."""
    number = execute(config, device=device, store=store, fresh=fresh)
    with Store(store) as kept:
        return kept.frame(number)


def execute(
    config: str,
    *,
    device: str = "auto",
    store: Path = DEFAULT_STORE,
    fresh: bool = False,
    listener: Listener = lambda progress: None,
) -> int:
    """Measure every case of a configuration (a name that ships, or a TOML file) and give the number of the run.

    A case that the same code measured in the same environment is taken from the store, its latency excepted;
    `fresh` measures it anew. Raises UsageError when the configuration or the store cannot be used.
    """
    watch = Stopwatch()
    text = read_config_text(config)
    settings = parse_config(text)
    place = find_device(device)
    tasks = plan(settings)
    _require_memory(tasks)
    environment, code = observe_environment(place), code_version()
    cases = sum(len(task.methods) for task in tasks)
    bench = Bench(place, watch)
    with Store(store) as kept, torch.no_grad():
        known = {} if fresh else kept.known_rows(code, environment)
        number = kept.begin_run(Path(config).stem, settings.title, text, code, environment)
        done = 0
        for task in tasks:
            for row in bench.measure(task, known):
                with watch.timing("store"):
                    kept.add(number, row)
                done += 1
                listener(Progress(done, cases, row))
        kept.finish_run(number, {**watch.seconds, "wall": watch.total()})
    return number


def _require_memory(tasks: list[Task]) -> None:
    """Refuse a problem whose fp64 inputs alone exceed this machine's memory, before anything is measured."""
    available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for task in tasks:
        needed = 8 * task.problem.shape.input_elements
        if needed > available:
            raise UsageError(
                f"sweep {task.sweep!r}: {task.problem.shape} needs {needed / 2**30:.0f} GiB for its inputs and this "
                f"machine has {available / 2**30:.0f}; make the shape smaller"
            )

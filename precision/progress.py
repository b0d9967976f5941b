"""The progress of a run or a check: a bar on a terminal; elsewhere a run says a line now and then."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Column

if TYPE_CHECKING:
    from precision.checking.conduct import Listener as CheckListener
    from precision.checking.steps import Step
    from precision.sweep.run import Listener
    from precision.sweep.run import Progress as RunProgress


# Where no bar is drawn, a run says how far it is after so many seconds.
_SILENCE = 30.0


@contextmanager
def progress_bar() -> Iterator[Listener]:
    """A listener that draws cases done and time left on stderr; without a terminal it prints a line at times."""
    with _bar("cases") as bar:
        if bar.disable:
            yield _lines(bar.console)
            return
        task = bar.add_task("planning", total=None)

        def listen(progress: RunProgress) -> None:
            cells = progress.row.cells
            label = f"{cells['sweep']}: {cells['method']} {cells['dtype']}"
            bar.update(task, completed=progress.done, total=progress.cases, description=label)

        yield listen


def _lines(console: Console) -> Listener:
    said = time.monotonic()

    def listen(progress: RunProgress) -> None:
        nonlocal said
        if time.monotonic() - said > _SILENCE:
            said = time.monotonic()
            console.print(f"{progress.done} of {progress.cases} cases", highlight=False)

    return listen


@contextmanager
def check_bar() -> Iterator[CheckListener]:
    """The same for the steps of a check."""
    with _bar("steps") as bar:
        task = bar.add_task("importing", total=None)

        def listen(done: int, steps: int, step: Step) -> None:
            bar.update(task, completed=done, total=steps, description=f"{step.problem} {step.dtype}")

        yield listen


def _bar(unit: str) -> Progress:
    console = Console(stderr=True)
    columns = (
        # On a narrow terminal the description is cut, and no number.
        TextColumn("{task.description}", markup=False, table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis")),
        BarColumn(bar_width=16),
        MofNCompleteColumn(),
        TextColumn(f"{unit},"),
        TimeElapsedColumn(),
        TextColumn("gone,"),
        TimeRemainingColumn(),
        TextColumn("left"),
    )
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal, expand=True)

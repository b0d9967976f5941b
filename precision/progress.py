"""The progress of a run or a check on a terminal; silent elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from precision.checking.conduct import Listener as CheckListener
    from precision.checking.steps import Step
    from precision.sweep.run import Listener
    from precision.sweep.run import Progress as RunProgress


@contextmanager
def progress_bar() -> Iterator[Listener]:
    """A listener that draws cases done and time left on stderr."""
    with _bar("cases") as bar:
        task = bar.add_task("planning", total=None)

        def listen(progress: RunProgress) -> None:
            cells = progress.row.cells
            label = f"{cells['sweep']}: {cells['method']} {cells['dtype']}"
            bar.update(task, completed=progress.done, total=progress.cases, description=label)

        yield listen


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
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(f"{unit},"),
        TimeElapsedColumn(),
        TextColumn("gone,"),
        TimeRemainingColumn(),
        TextColumn("left"),
    )
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)

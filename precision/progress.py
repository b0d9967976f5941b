"""The progress of a run on a terminal; silent elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from precision.sweep.run import Listener
    from precision.sweep.run import Progress as RunProgress


@contextmanager
def progress_bar() -> Iterator[Listener]:
    """A listener that draws cases done and time left on stderr."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("cases,"),
        TimeElapsedColumn(),
        TextColumn("gone,"),
        TimeRemainingColumn(),
        TextColumn("left"),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("planning", total=None)

        def listen(progress: RunProgress) -> None:
            cells = progress.row.cells
            label = f"{cells['sweep']}: {cells['method']} {cells['dtype']}"
            bar.update(task, completed=progress.done, total=progress.cases, description=label)

        yield listen

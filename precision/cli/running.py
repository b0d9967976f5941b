"""Commands about runs: measure, report, show, export, compare, and what can be named."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from precision.cli.app import DeviceOption, OutOption, RunArgument, StoreOption, app
from precision.records.store import DEFAULT_STORE


class Format(StrEnum):
    """How `show` prints rows."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"
    MARKDOWN = "markdown"


@app.command()
def run(
    config: Annotated[str, typer.Argument(help="A configuration that ships, or a TOML file.")] = "default",
    device: DeviceOption = "auto",
    store: StoreOption = DEFAULT_STORE,
    out: OutOption = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Measure everything anew; take nothing from the store.")
    ] = False,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds that the kernels of a case may take.")] = 300,
    jobs: Annotated[int, typer.Option(min=1, help="Worker processes; one alone measures latencies.")] = 1,
    scheduler: Annotated[str | None, typer.Option(help="Dask scheduler to measure on: tcp://HOST:8786.")] = None,
) -> None:
    """Measure every case of a configuration, keep the rows, and write the report; one that was stopped goes on."""
    from precision.progress import progress_bar
    from precision.report.folder import require_free
    from precision.report.write import HTML, MARKDOWN, ROWS
    from precision.sweep.run import execute

    if out is not None:
        require_free(out, dict.fromkeys((MARKDOWN, HTML, ROWS)))
    with progress_bar() as listener:
        number = execute(
            config,
            device=device,
            store=store,
            fresh=fresh,
            jobs=jobs,
            scheduler=scheduler,
            timeout=timeout,
            listener=listener,
        )
    _report(number, store, out)


@app.command()
def report(run: RunArgument = None, store: StoreOption = DEFAULT_STORE, out: OutOption = None) -> None:
    """Write the report of a run that is in the store."""
    _report(run, store, out)


@app.command()
def show(
    run: RunArgument = None,
    store: StoreOption = DEFAULT_STORE,
    format: Annotated[Format, typer.Option(help="How to print the rows.")] = Format.TABLE,
    columns: Annotated[
        str | None, typer.Option(help="Columns, comma-separated; `all` for every one, as csv and json have them.")
    ] = None,
) -> None:
    """Print the rows of a run."""
    from precision.records.show import ROWS, render, select
    from precision.records.store import Store

    with Store(store, create=False) as kept:
        frame = kept.rows.frame(kept.runs.find(run).id)
    everything = "all" if format in (Format.CSV, Format.JSON) else None
    render(select(frame, columns or everything), format.value, ROWS)


@app.command()
def compare(
    base: Annotated[str, typer.Argument(help="Run: 3, other.sqlite, or other.sqlite:3.")],
    new: Annotated[str, typer.Argument(help="Run to hold against it, named likewise.")],
    store: StoreOption = DEFAULT_STORE,
    every: Annotated[bool, typer.Option("--all", help="Show the cases that are the same, too.")] = False,
) -> None:
    """Compare two runs case by case; status 1 when one is worse in the new run."""
    from precision.compare import NARROW, compare_runs
    from precision.records.read_run import read_run
    from precision.records.show import render
    from precision.records.table import say

    comparison = compare_runs(read_run(base, store), read_run(new, store))
    rows = comparison.rows if every else comparison.rows[comparison.rows["verdict"] != "same"]
    if not rows.empty:
        render(rows, "table", NARROW)
    for sentence in comparison.sentences:
        say(sentence)
    raise typer.Exit(int(comparison.verdict == "fail"))


@app.command()
def runs(store: StoreOption = DEFAULT_STORE) -> None:
    """List the runs of a store, which `report`, `show`, `compare` and `export` take by their number."""
    import pandas as pd

    from precision.records.show import render
    from precision.records.store import Store

    with Store(store, create=False) as kept:
        lines = [(run.id, run.name, run.title, run.started, run.finished or "not finished") for run in kept.runs.all()]
    render(pd.DataFrame(lines, columns=["run", "name", "title", "started", "finished"]), "table")


@app.command("list")
def list_(
    kind: Annotated[str, typer.Argument(help="Kind of thing; left out, the kinds are listed.")] = "kinds",
) -> None:
    """List what can be named in a configuration, and the columns of a row."""
    from precision.catalogue import catalogue
    from precision.records.show import render

    render(catalogue(kind), "table")


@app.command()
def export(
    file: Annotated[Path, typer.Argument(help="File to write: .parquet or .csv.")],
    run: Annotated[int | None, typer.Option(help="Number of the run; the newest when left out.")] = None,
    store: StoreOption = DEFAULT_STORE,
) -> None:
    """Write the rows of a run to a Parquet or CSV file."""
    from precision.records.export import export_frame
    from precision.records.store import Store

    with Store(store, create=False) as kept:
        frame = kept.rows.frame(kept.runs.find(run).id)
    export_frame(frame, file)
    typer.echo(f"{len(frame)} rows: {file}")


def _report(run: int | None, store: Path, out: Path | None) -> None:
    from precision.records.store import Store
    from precision.records.table import say
    from precision.report.source import folder_of
    from precision.report.terminal import print_tables
    from precision.report.write import write_report

    with Store(store, create=False) as kept:
        record = kept.runs.find(run)
        frame = kept.rows.frame(record.id)
    written = write_report(record, frame, out or Path("reports") / folder_of(record), store=store)
    for sentence in written.report.verdict:
        say(f"- {sentence}", indent="  ")
    print_tables(written.report)
    counts = ", ".join(f"{count} {status}" for status, count in frame["status"].value_counts().items())
    typer.echo(f"Run {record.id}: {len(frame)} cases ({counts}).")
    typer.echo(f"Report: {written.html} and {written.markdown}")

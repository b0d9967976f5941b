"""The command that makes published results again and exits with 1 when one is missed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from precision.cli.app import JsonOption, app, write_json


@app.command()
def reproduce(
    names: Annotated[
        list[str] | None, typer.Argument(help="Names of `precision list published`; all when left out.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer samples and looser tolerances: under a minute.")
    ] = False,
    vectors: Annotated[
        Path | None, typer.Option(help="Logits for blanchard-higham, one vector a line (text) or .npy.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Folder for a page with tables and figures.")] = None,
    json: JsonOption = None,
) -> None:
    """Make published results about attention's numerics again; status 1 when a figure is missed."""
    from rich.console import Console

    from precision.experiments.effort import Effort
    from precision.published.run import reproduce as measure
    from precision.published.run import to_json
    from precision.published.show import render
    from precision.published.write import write_reproduction

    with Console(stderr=True).status("") as status:
        findings = measure(names, Effort(quick, vectors=str(vectors or "")), status.update)
    render(findings)
    told = to_json(findings)
    write_json(json, told)
    if out is not None:
        written = write_reproduction(findings, out)
        typer.echo(f"Pages: {written.html} and {written.markdown}")
    raise typer.Exit(int(told["verdict"] == "fail"))

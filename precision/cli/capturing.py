"""The command that records real tensors."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from precision.cli.app import app


@app.command()
def capture(
    target: Annotated[str, typer.Argument(help="A recipe (minilm), FILE.py:FUNCTION or MODULE:FUNCTION.")],
    out: Annotated[Path, typer.Option("--out", help="File to write.")] = Path("capture.safetensors"),
) -> None:
    """Run a model and record what it hands to torch's scaled dot-product attention."""
    from precision.capture.target import capture as record

    header = record(target, out)
    typer.echo(f"{len(header.calls)} calls of attention: {out}")
    typer.echo(f'Use them in a configuration as inputs = "captured[file={out}]".')

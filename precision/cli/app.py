"""The application and the options that several commands share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

app = typer.Typer(
    name="precision",
    help="The numerical truth about attention kernels: error, overflow and NaN incidence, and latency.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

StoreOption = Annotated[Path, typer.Option("--store", help="SQLite file that keeps the rows.", show_default=True)]
OutOption = Annotated[Path | None, typer.Option("--out", help="Folder of the report. [default: reports/NAME]")]
RunArgument = Annotated[int | None, typer.Argument(help="Number of the run; the newest when left out.")]
DeviceOption = Annotated[str, typer.Option("--device", help="auto, cpu or cuda.")]
JsonOption = Annotated[Path | None, typer.Option("--json", help="File for the verdict and its rows.")]


def write_json(file: Path | None, value: dict[str, Any]) -> None:
    """Write a verdict where the user asked for it; raises UsageError when that cannot be done."""
    from precision.errors import UsageError

    if file is None:
        return
    try:
        file.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{str(file)!r} cannot be written: {error.strerror or error}") from None

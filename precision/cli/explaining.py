"""The command that says what a kernel rounds, what that costs, and what fails first."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from precision.cli.app import DeviceOption, JsonOption, app, write_json


class Error(StrEnum):
    """Which error is attributed to the stages."""

    TOTAL = "total"
    ARITHMETIC = "arithmetic"


@app.command()
def explain(
    target: Annotated[str, typer.Argument(help="A backend, or FILE.py:FUNCTION, called as torch's SDPA is.")],
    dtype: Annotated[list[str] | None, typer.Option(help="Again for more. [default: fp16, bf16]")] = None,
    inputs: Annotated[str, typer.Option(help="Inputs whose error is attributed and followed.")] = "normal",
    mask: Annotated[str | None, typer.Option(help="Their mask.")] = None,
    scale: Annotated[str | None, typer.Option(help="Their scale: a rule or a number.")] = None,
    q_len: Annotated[int | None, typer.Option(min=1, help="Queries. [default: 64]")] = None,
    kv_len: Annotated[int | None, typer.Option(min=1, help="Keys. [default: 128]")] = None,
    d_k: Annotated[int | None, typer.Option("--d-k", min=1, help="Width of a head. [default: 128]")] = None,
    error: Annotated[Error, typer.Option(help="With the input cast, or without.")] = Error.TOTAL,
    backward: Annotated[bool, typer.Option("--backward", help="Attribute and follow dq, dk and dv, too.")] = False,
    device: DeviceOption = "auto",
    lines: Annotated[int, typer.Option(min=1, help="Plans to show for each dtype.")] = 6,
    out: Annotated[Path | None, typer.Option("--out", help="Folder for a page with tables and figures.")] = None,
    json: JsonOption = None,
) -> None:
    """Say what a kernel rounds, which stage costs most, and what fails first; status 1 when no plan explains it."""
    from precision.explain.diagnosis import diagnose
    from precision.explain.fingerprint import explain as find_plan
    from precision.explain.page import write_explanation
    from precision.explain.question import Question
    from precision.explain.show import render

    dtypes = dtype or ["fp16", "bf16"]
    question = Question(inputs, mask, scale, q_len, kv_len, d_k, error.value, backward)
    found = find_plan(target, dtypes, device)
    diagnoses = diagnose(target, found.nearest, question, device)
    render(found, diagnoses, lines)
    write_json(json, {**found.to_json(), "problems": [diagnosis.to_json() for diagnosis in diagnoses]})
    if out is not None:
        written = write_explanation(found, diagnoses, out, question.command(target, dtypes))
        typer.echo(f"Pages: {written.html} and {written.markdown}")
    raise typer.Exit(int(not found.passed))

"""Commands that end in a verdict and exit with 1 when it is `fail`: check, claims, history."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from precision.cli.app import DeviceOption, JsonOption, app, write_json


@app.command()
def check(
    target: Annotated[str, typer.Argument(help="FILE.py:FUNCTION or MODULE:FUNCTION, called as torch's SDPA is.")],
    dtype: Annotated[list[str] | None, typer.Option(help="Again for more. [default: fp32, fp16, bf16]")] = None,
    device: DeviceOption = "auto",
    backward: Annotated[bool, typer.Option(help="Judge dq, dk and dv, too.")] = True,
    strict: Annotated[bool, typer.Option("--strict", help="Fail on limits, too.")] = False,
    timeout: Annotated[float, typer.Option(help="Seconds that one problem may take; more is a failure.")] = 60.0,
    budget: Annotated[float, typer.Option(help="Seconds after which no problem begins; the rest is listed.")] = 60.0,
    out: Annotated[Path | None, typer.Option("--out", help="Folder for a page with every problem.")] = None,
    json: JsonOption = None,
) -> None:
    """Judge an attention kernel: right to within its number format or not, where it goes wrong, and why."""
    from rich.console import Console

    from precision.checking.isolated import check_isolated
    from precision.checking.render import render
    from precision.progress import check_bar

    with check_bar() as listen:
        result = check_isolated(
            target,
            dtypes=dtype or ("fp32", "fp16", "bf16"),
            device=device,
            backward=backward,
            strict=strict,
            timeout=timeout,
            budget=budget,
            listen=listen,
        )
    render(result, Console())
    write_json(json, result.to_json())
    if out is not None:
        from precision.checking.page import write_page

        typer.echo(f"Page: {write_page(result, out)}")
    raise typer.Exit(int(not result.passed))


@app.command()
def claims(
    ids: Annotated[list[str] | None, typer.Argument(help="Claims to test; all when left out.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer samples: a minute instead of many.")] = False,
    capture: Annotated[str, typer.Option(help="Capture file for the claims about real tensors.")] = "minilm",
    out: Annotated[Path | None, typer.Option("--out", help="Folder for the ledger, page and figures.")] = None,
    json: JsonOption = None,
) -> None:
    """Test what people say about 1/sqrt(d_k); status 1 when a verdict is not the one that the ledger holds."""
    from precision.claims.run import run_claims, to_json
    from precision.claims.show import render
    from precision.claims.write import write_ledger

    findings = run_claims(ids, quick, capture)
    written = write_ledger(findings, out) if out is not None else None
    render(findings, written)
    write_json(json, to_json(findings))
    if written is not None:
        typer.echo(f"Ledger: {written.html} and {written.markdown}")
    raise typer.Exit(int(to_json(findings)["verdict"] == "fail"))


@app.command()
def history(
    asv: Annotated[Path | None, typer.Option(help="asv's results_dir. [default: .asv/results]")] = None,
    pytest: Annotated[Path | None, typer.Option(help="pytest-benchmark's storage. [default: .benchmarks]")] = None,
    store: Annotated[Path | None, typer.Option(help="Store of runs. [default: .precision/store.sqlite]")] = None,
    limit: Annotated[list[str] | None, typer.Option(help="PATTERN=NUMBER: the largest value allowed.")] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Folder for a page with the plot.")] = None,
    json: JsonOption = None,
) -> None:
    """Follow error and latency over commits; status 1 names the commit and the benchmark that broke a limit."""
    from precision.history.follow import follow
    from precision.history.page import write_history
    from precision.history.show import render

    found = follow(asv=asv, pytest=pytest, store=store, limits=limit or ())
    render(found)
    write_json(json, found.to_json())
    if out is not None:
        typer.echo(f"Page: {write_history(found, out)}")
    raise typer.Exit(int(not found.passed))

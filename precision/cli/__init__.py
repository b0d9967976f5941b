"""The command `precision`. No logic: every command parses its arguments, calls the library and says where things are.

Nothing heavy is imported before a command needs it, so that `--help` answers at once.
"""

from __future__ import annotations

import io
import os
import sys
from typing import Any

import typer

import precision

# Commands register themselves; --help shows them in this order.
# isort: off
from precision.cli import running, judging, explaining, reproducing, capturing  # noqa: F401

# isort: on
from precision.cli.app import app
from precision.entry import INTERRUPTED
from precision.errors import UsageError

# typer names the class of a wrong command line only by this subclass.
_ArgumentError: Any = typer.BadParameter.__base__
_STOPPED_RUN = "stopped; what was measured is kept, and the same command goes on from there"


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(precision.__version__)


def main() -> None:
    """Run the command line; a mistake ends in one sentence on stderr and status 2."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # not every terminal knows × and →
    try:
        status = typer.main.get_command(app).main(prog_name="precision", standalone_mode=False)
        sys.stdout.flush()
    except UsageError as error:
        _fail(str(error))
    except _ArgumentError as error:
        _fail(f"{error.format_message().rstrip('.')}; see precision --help")
    except BrokenPipeError:  # the reader has seen enough
        _give_up_output()
        status = 0
    except OSError as error:
        _give_up_output()
        _fail(str(error))
    except typer.Abort:
        status = INTERRUPTED
    if status == INTERRUPTED:
        _fail(_STOPPED_RUN if "run" in sys.argv[1:2] else "stopped", status)
    sys.exit(status or 0)


def _give_up_output() -> None:
    """What cannot be written, say since the disk is full, would raise once more at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(message: str, status: int = 2) -> None:
    print(f"precision: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(status)

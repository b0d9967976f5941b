"""The command `precision`. No logic: every command parses its arguments, calls the library and says where things are.

Nothing heavy is imported before a command needs it, so that `--help` answers at once.
"""

from __future__ import annotations

import sys
from typing import Any

import typer

import precision

# Commands register themselves; --help shows them in this order.
# isort: off
from precision.cli import running, judging, capturing  # noqa: F401

# isort: on
from precision.cli.app import app
from precision.errors import UsageError

# typer names the class of a wrong command line only by this subclass.
_ArgumentError: Any = typer.BadParameter.__base__
_INTERRUPTED = 130  # 128 + SIGINT, as shells say it


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(precision.__version__)


def main() -> None:
    """Run the command line; a mistake ends in one sentence on stderr and status 2."""
    try:
        status = typer.main.get_command(app).main(prog_name="precision", standalone_mode=False)
    except UsageError as error:
        _fail(str(error))
    except _ArgumentError as error:
        _fail(f"{error.format_message().rstrip('.')}; see precision --help")
    except typer.Abort:
        status = _INTERRUPTED
    if status == _INTERRUPTED:
        _fail("stopped; what was measured is kept, and the same command goes on from there", status)
    sys.exit(status or 0)


def _fail(message: str, status: int = 2) -> None:
    print(f"precision: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(status)

"""Where the command `precision` begins: Ctrl-C while Python still imports is one line, too."""

from __future__ import annotations

import sys

INTERRUPTED = 130  # 128 + SIGINT, as shells say it


def main() -> None:
    """Import the command line and run it."""
    try:
        from precision.cli import main as run

        run()
    except KeyboardInterrupt:
        print("precision: stopped", file=sys.stderr)
        sys.exit(INTERRUPTED)

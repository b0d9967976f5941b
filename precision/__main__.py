"""`python -m precision` is the command `precision`."""

from precision.cli import main

main()

"""`python -m precision` is the command `precision`."""

from precision.entry import main

main()

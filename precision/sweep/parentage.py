"""A process that ends when its parent does, whatever it is doing."""

from __future__ import annotations

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1  # prctl(2)


def end_with_parent(wanted: bool = True) -> None:
    """Have the kernel kill this process when the thread that started it ends, or no longer."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL if wanted else 0)


def fall_silent() -> None:
    """What this process, or C code in it, prints from now on goes nowhere."""
    with open(os.devnull, "wb") as nowhere:
        for stream in (1, 2):
            os.dup2(nowhere.fileno(), stream)

"""Whether an exception is the kernel's own answer to what it does not take, or an accident."""

from __future__ import annotations

import linecache
import re
import traceback
from pathlib import Path

import torch

_TORCH = Path(torch.__file__).parent
# What libraries say of a dtype, a width or a layout that they do not take.
_WORDS = ("support", "not implemented")


def is_refusal(error: Exception) -> bool:
    """Whether a line `raise` or `assert` outside of torch made it, or its words say that something is not supported."""
    if isinstance(error, NotImplementedError) or any(words in str(error).lower() for words in _WORDS):
        return True
    frames = traceback.extract_tb(error.__traceback__)
    if not frames or _TORCH in Path(frames[-1].filename).parents:
        return False
    line = linecache.getline(frames[-1].filename, frames[-1].lineno or 0)
    return re.search(r"\b(raise|assert)\b", line) is not None

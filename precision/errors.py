"""The one exception that means: the call or its input is wrong.

The command line turns it into one sentence on stderr and exit status 2, with no traceback.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UsageError(ValueError):
    """A mistake that the user can mend; its message is one sentence that says how."""


# Of a few dozen backends or columns one can be picked; nobody reads a list of thousands.
_MOST_KNOWN = 60


def nearest(word: str, known: Iterable[str]) -> str:
    """A clause that helps after an unknown word: the nearest known ones, or all of them when they are not too many."""
    known = sorted(known)
    close = difflib.get_close_matches(word, known, n=2, cutoff=0.6)
    if close:
        return "did you mean " + " or ".join(repr(name) for name in close) + "?"
    if not known:
        return "none is known"
    more = len(known) - _MOST_KNOWN
    return f"known: {', '.join(known[:_MOST_KNOWN])}" + (f" and {more} more" if more > 0 else "")

"""The limits of a kernel as sentences, each once, with the dtypes in which it holds."""

from __future__ import annotations

from collections.abc import Iterable

from precision.checking.result import Outcome, Row


def list_limits(rows: Iterable[Row]) -> tuple[str, ...]:
    """What is refused and what is missed beyond the format, in the order in which it was met."""
    dtypes: dict[str, list[str]] = {}
    for row in rows:
        if row.outcome in (Outcome.LIMIT, Outcome.REFUSED):
            known = dtypes.setdefault(row.note, [])
            if row.dtype not in known:
                known.append(row.dtype)
    return tuple(f"{note} ({', '.join(where)})" for note, where in dtypes.items())

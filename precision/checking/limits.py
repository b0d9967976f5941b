"""The limits of a kernel as sentences, each once, with the dtypes in which it holds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from precision.checking.result import Outcome, Row


def list_limits(rows: Iterable[Row]) -> tuple[str, ...]:
    """What is refused and what is missed beyond the format, in the order in which it was met.

    A kernel that fails on the plain problem has no limits in that dtype, and what it fails with is no refusal.
    """
    rows = list(rows)
    plain = [row for row in rows if row.problem == "plain" and row.outcome is Outcome.FAIL]
    general = {row.dtype for row in plain}
    said = {row.note for row in plain if row.max_abs is None}
    dtypes: dict[str, list[str]] = {}
    for row in _limits(rows):
        beyond = row.outcome is Outcome.LIMIT or row.note.startswith("refused ")
        if row.dtype in general and (beyond or any(row.note.endswith(why) for why in said)):
            continue
        known = dtypes.setdefault(row.note, [])
        if row.dtype not in known:
            known.append(row.dtype)
    return tuple(f"{note} ({', '.join(where)})" for note, where in dtypes.items())


def _limits(rows: Iterable[Row]) -> Iterator[Row]:
    return (row for row in rows if row.outcome in (Outcome.LIMIT, Outcome.REFUSED))

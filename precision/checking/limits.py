"""The limits of a kernel as sentences, each once, with the dtypes in which it holds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from precision.checking.result import Outcome, Row

# Begins the note on a problem that asks for nothing special, and which the kernel refuses by an error of its own.
BY_SHAPE = "its shape is refused: "
_REFUSED, _EVERYTHING = " refused: ", "every problem is refused: "
_ALL = "all problems"

Notes = dict[str, list[str]]  # where each holds, in dtypes


def list_limits(rows: Iterable[Row]) -> tuple[str, ...]:
    """What is refused and what is missed beyond the format, in the order in which it was met.

    A kernel that fails on the plain problem has no limits in that dtype, and what it fails with is no refusal.
    """
    rows = list(rows)
    notes: Notes = {}
    refused = _refused_dtypes(rows)
    for dtype, said in refused.items():
        notes.setdefault(f"{_EVERYTHING}{said}", []).append(dtype)
    failed = {row.dtype for row in rows if row.problem == _ALL}
    told = [row for row in _limits(rows) if row.dtype not in (*refused, *failed)]
    for note, dtype in [*_refused_shapes(told), *_notes(told, rows)]:
        known = notes.setdefault(note, [])
        if dtype not in known:
            known.append(dtype)
    return tuple(f"{note} ({', '.join(where)})" for note, where in notes.items() if not _is_told(note, notes))


def find_refusal(rows: Iterable[Row]) -> Iterator[Row]:
    """A failure for each dtype where all that was tried is refused, if there is no other dtype."""
    rows = list(rows)
    refused = _refused_dtypes(rows)
    if refused.keys() == {row.dtype for row in rows}:
        for dtype, said in refused.items():
            yield Row(dtype, _ALL, "out", Outcome.FAIL, note=f"{_EVERYTHING}{said}")


def _refused_dtypes(rows: list[Row]) -> dict[str, str]:
    """The dtypes in which there is nothing but refusals, with the kernel's first words."""
    judged = {row.dtype for row in rows if row.max_abs is not None or row.outcome in (Outcome.LIMIT, Outcome.FAIL)}
    notes: dict[str, str] = {}
    for row in rows:
        if row.dtype not in judged:
            notes.setdefault(row.dtype, row.note.removeprefix(BY_SHAPE))
    return notes


def _refused_shapes(told: list[Row]) -> Iterator[tuple[str, str]]:
    """One sentence for all problems whose shape is refused, with the kernel's first words."""
    refused = [row for row in told if row.note.startswith(BY_SHAPE)]
    problems = len({row.problem for row in refused})
    for row in refused:
        said = refused[0].note.removeprefix(BY_SHAPE)
        yield f"{problems} shape{'s are' if problems > 1 else ' is'} refused, the first with {said}", row.dtype


def _notes(told: list[Row], rows: list[Row]) -> Iterator[tuple[str, str]]:
    plain = [row for row in rows if row.problem == "plain" and row.outcome is Outcome.FAIL]
    general = {row.dtype for row in plain}
    said = [row.note for row in plain if row.max_abs is None]
    for row in told:
        beyond = row.outcome is Outcome.LIMIT or row.note.startswith("refused ")
        is_general = row.dtype in general and (beyond or any(row.note.endswith(why) for why in said))
        if not is_general and not row.note.startswith(BY_SHAPE):
            yield row.note, row.dtype


def _is_told(note: str, notes: Notes) -> bool:
    """Whether it says that features are refused together, some of which are refused for the same reason anyway."""
    features, reason = _features(note)
    for other, where in notes.items():
        fewer, why = _features(other)
        if why == reason != "" and fewer < features and set(notes[note]) <= set(where):
            return True
    return False


def _features(note: str) -> tuple[set[str], str]:
    features, _, reason = note.partition(_REFUSED)
    return set(features.split(" and ")), reason


def _limits(rows: Iterable[Row]) -> Iterator[Row]:
    return (row for row in rows if row.outcome in (Outcome.LIMIT, Outcome.REFUSED))

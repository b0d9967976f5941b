"""What a table becomes where it is too wide: fewer columns, and nothing lost that a line above or below can say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from precision.records.wrap import longest, longest_piece

GAP = 2  # between two columns
_PROSE = 30  # cells that are longer break first
_SHORT = 7  # headers up to this length do not break


@dataclass(frozen=True)
class Narrow:
    """The columns of a table that can be shown otherwise where it is too wide."""

    above: Sequence[str] = ()  # said once above the rows that share their values
    below: Sequence[str] = ()  # long texts, numbered and written out below the table
    marks: Sequence[str] = ()  # words in a grid: one column tells which columns have which word
    spare: Sequence[str] = ()  # left out


AS_IT_IS = Narrow()


@dataclass(frozen=True)
class Layout:
    """`frame` has the columns of the table, `above` those of the line above each group of rows; both have its index."""

    frame: pd.DataFrame
    above: pd.DataFrame
    before: tuple[str, ...] = ()  # lines before the table
    after: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        """The headers of the columns."""
        return [str(name) for name in self.frame]

    def widths(self, least: bool) -> list[int]:
        """The widths of the columns when headers and long cells break, or, at least, when all cells do."""
        headers = [longest_piece([name]) if len(name) > _SHORT else len(name) for name in self.names]
        pieces = [longest_piece(self.frame[name]) for name in self.names]
        whole = [min(longest(self.frame[name]), _PROSE) for name in self.names]
        cells = pieces if least else map(max, pieces, whole)
        return list(map(max, headers, cells))

    def needs(self, least: bool) -> int:
        """The width of the whole table."""
        return sum(self.widths(least)) + GAP * (len(self.frame.columns) - 1)


def lift(whole: Layout, narrow: Narrow) -> Layout:
    """What all rows share goes before the table, what some share above them, long texts below it."""
    frame = _tell_marks(whole.frame, [name for name in narrow.marks if name in whole.frame])
    before: list[str] = []
    after: list[str] = []
    shared = [name for name in frame if len(frame) > 1 and frame[name].nunique() == 1]
    if len(shared) < len(frame.columns):
        said = [f"{name} {frame[name].iloc[0]}" for name in shared if frame[name].iloc[0]]
        before = [f"In every row: {', '.join(said)}."] if said else []
        frame = frame.drop(columns=shared)
    above = [name for name in narrow.above if name in frame]
    if len(above) == len(frame.columns):
        above = []
    lifted = frame.drop(columns=above)
    for name in narrow.below:
        if name in lifted:
            texts = list(dict.fromkeys(text for text in lifted[name] if text))
            numbers = {text: f"[{number}]" for number, text in enumerate(texts, 1)}
            lifted = lifted.assign(**{name: [numbers.get(text, "") for text in lifted[name]]})
            after += [f"{number} {text}" for text, number in numbers.items()]
    return Layout(lifted, frame[above], tuple(before), tuple(after))


def _tell_marks(frame: pd.DataFrame, marks: list[str]) -> pd.DataFrame:
    """`refused: jax; ok: eager, flex` in the place of the columns jax, eager and flex; the word of most comes last."""
    if not marks:
        return frame
    told = []
    for words in frame[marks].itertuples(index=False):
        names: dict[str, list[str]] = {}
        for name, word in zip(marks, words, strict=True):
            names.setdefault(word, []).append(name)
        names.pop("", None)
        by_size = sorted(names.items(), key=lambda item: len(item[1]))
        told.append("; ".join(f"{word}: {', '.join(which)}" for word, which in by_size))
    return frame.drop(columns=marks).assign(marks=told)


def leave_out(layout: Layout, spare: Sequence[str]) -> Layout:
    """The table without these columns, and a line that says so."""
    left_out = [name for name in spare if name in layout.frame]
    if not left_out:
        return layout
    after = (*layout.after, f"Left out, for want of room: {', '.join(left_out)}.")
    return Layout(layout.frame.drop(columns=left_out), layout.above, layout.before, after)

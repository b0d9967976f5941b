"""A table on a terminal: no figure is cut, and what has no room becomes narrower step by step.

First what rows share moves out of the lines, then spare columns are left out, then cells break; when even that is too
wide, every row is a block of lines.
"""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Sequence

import pandas as pd
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from precision.records.narrow import GAP, Layout, Narrow, leave_out, lift
from precision.records.wrap import longest, wrap

_PIPE = 10_000  # a pipe has no width to fit: the lines stay whole


def console() -> Console:
    """Standard output as wide as the terminal, or as COLUMNS says; a pipe is as wide as any line."""
    return Console(width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else _PIPE)


def say(sentence: str, indent: str = "") -> None:
    """Print a sentence, broken between words where the terminal ends; `indent` begins every line but the first."""
    lines = textwrap.wrap(
        sentence, console().width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    print("\n".join(lines))


def print_table(frame: pd.DataFrame, narrow: Narrow) -> None:
    """Print a frame of texts."""
    room = console().width
    whole = Layout(frame, frame[[]])
    if whole.needs(least=False) <= room:
        _draw(whole, room)
        return
    lifted = lift(whole, narrow)
    short = leave_out(lifted, narrow.spare)
    for layout, least in ((lifted, False), (short, False), (short, True)):
        if layout.needs(least) <= room:
            _draw(layout, room)
            return
    _draw_blocks(frame)


def _draw(layout: Layout, room: int) -> None:
    out = console()
    some, least = layout.widths(least=False), layout.widths(least=True)
    if layout.needs(least=False) > room:
        widths = _fit(some, least, room)
    else:
        widths = _fit([longest([name, *layout.frame[name]]) for name in layout.names], some, room)
    for line in layout.before:
        say(line)
    if layout.above.columns.empty:
        out.print(_table(layout.frame, widths))
    else:
        out.print(_table(layout.frame.iloc[:0], widths))
        for values, rows in layout.frame.groupby([layout.above[name] for name in layout.above], sort=False):
            named = zip(layout.above, values, strict=True)
            out.print(Text(", ".join(f"{name} {value}" for name, value in named if value), style="bold"))
            out.print(_table(rows, widths, show_header=False))
    for line in layout.after:
        say(line, indent="    ")


def _fit(most: Sequence[int], least: Sequence[int], room: int) -> list[int]:
    """Widths that fit into the room: the widest give way first, none below its least."""
    widths = list(most)
    excess = sum(widths) + GAP * (len(widths) - 1) - room
    for _ in range(excess):
        widest = max((i for i in range(len(widths)) if widths[i] > least[i]), key=widths.__getitem__)
        widths[widest] -= 1
    return widths


def _table(frame: pd.DataFrame, widths: Sequence[int], show_header: bool = True) -> Table:
    table = Table(
        box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold",
        show_header=show_header,
    )  # fmt: skip
    for name, width in zip(map(str, frame), widths, strict=True):
        table.add_column(Text(wrap(name, width)), width=width, no_wrap=True)
    for cells in frame.itertuples(index=False):
        table.add_row(*(Text(wrap(cell, width)) for cell, width in zip(cells, widths, strict=True)))
    return table


def _draw_blocks(frame: pd.DataFrame) -> None:
    """A line a cell and a blank one after each row; empty cells are left out."""
    names = longest(map(str, frame))
    for cells in frame.itertuples(index=False):
        for name, cell in zip(frame, cells, strict=True):
            if cell:
                say(f"{name:<{names}}  {cell}", indent=" " * (names + 2))
        print()

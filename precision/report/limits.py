"""What a page shows at most, whatever the size of the run: of a table the worst lines, of a figure the worst settings.

The rows hold everything, and every caption says what was left out.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from precision.report.blocks import Section, Table

MOST_LINES = 200  # of a table
MOST_SETTINGS = 40  # lines or ticks of a figure
MOST_PANELS = 12  # of a figure
MOST_POINTS = 1500  # of a figure
_CLASSES = 24


def worst_rows(
    rows: pd.DataFrame, size: pd.Series[Any], most: int = MOST_LINES, word: str = "worst"
) -> tuple[pd.DataFrame, str]:
    """The rows where `size` (one value a row) is largest, in their order, and a sentence when that is not all of them.

    `word` is what the largest are called there. A missing size counts as the largest: it is an error of which no
    element was finite.
    """
    if len(rows) <= most:
        return rows, ""
    order = size.astype("float64").fillna(math.inf).to_numpy().argsort(kind="stable")[::-1]
    return rows.iloc[sorted(order[:most])], _said(word, most, len(rows))


def one_point(rows: pd.DataFrame, size: str, *alike: str) -> tuple[pd.DataFrame, str]:
    """The points of a scatter plot over the column `size`, and what one of them is.

    Where there are too many for a point each, one is the median of the rows that share the columns `alike` and lie in
    one of _CLASSES classes of the size, which are evenly spaced on a logarithmic axis.
    """
    if len(rows) <= MOST_POINTS:
        return rows, "One point a case"
    classes = pd.cut(np.log(rows[size]), _CLASSES, labels=False)
    points = rows.groupby([*alike, classes], sort=False, as_index=False)[[size, "out_rel_l2"]].median()
    return points, f"One point the median of a method's cases in one of {_CLASSES} classes of the horizontal axis"


def shortened(section: Section) -> Section:
    """A section none of whose tables has more than the first MOST_LINES lines."""
    blocks = (_first_lines(block) if isinstance(block, Table) else block for block in section.blocks)
    return replace(section, blocks=tuple(blocks))


def _first_lines(table: Table) -> Table:
    if len(table.rows) <= MOST_LINES:
        return table
    caption = f"{table.caption}{_said('first', MOST_LINES, len(table.rows))}"
    return replace(table, caption=caption, rows=table.rows[:MOST_LINES])


def _said(which: str, most: int, of: int) -> str:
    return f" Shown are the {which} {most} of {of:,}."

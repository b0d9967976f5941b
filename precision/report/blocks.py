"""What a report is made of. The two templates render these and nothing else; every number in them is made before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from precision.report.show import Show

Cell = str | int | float | bool | None


@dataclass(frozen=True)
class Field:
    """One column of a table: its header and how its values are shown (the name of a filter in show.py).

    `narrow` is what becomes of it on a terminal that has no room for all columns (records/table.py).
    """

    header: str
    show: Show = "number"
    narrow: Literal["", "above", "marks", "spare"] = ""


@dataclass(frozen=True)
class Table:
    """Raw values under headers.

    `collapsed` hides a long table behind its caption where the page can; `printed` shows it on the terminal, too.
    """

    kind: ClassVar[str] = "table"
    caption: str
    fields: tuple[Field, ...]
    rows: tuple[tuple[Cell, ...], ...]
    collapsed: bool = False
    printed: bool = False

    def __post_init__(self) -> None:
        if any(len(row) != len(self.fields) for row in self.rows):
            raise ValueError(f"table {self.caption!r}: every row needs {len(self.fields)} cells")


@dataclass(frozen=True)
class Figure:
    """An SVG without a title; `caption` says how to read it and `alt` what it shows."""

    kind: ClassVar[str] = "figure"
    name: str
    svg: str
    caption: str
    alt: str


@dataclass(frozen=True)
class Code:
    """Lines of a language that the reader can run."""

    kind: ClassVar[str] = "code"
    caption: str
    text: str
    language: str = "python"


@dataclass(frozen=True)
class Link:
    """A file beside the pages."""

    kind: ClassVar[str] = "link"
    file: str
    text: str


@dataclass(frozen=True)
class Section:
    """A heading, what follows from the rows in a few sentences, and the evidence."""

    id: str
    title: str
    sentences: tuple[str, ...]
    blocks: tuple[Table | Figure | Code | Link, ...]


@dataclass(frozen=True)
class Report:
    """Everything both pages show."""

    title: str
    facts: tuple[str, ...]  # what ran, where and when
    verdict: tuple[str, ...]
    command: str  # makes the whole report again
    sections: tuple[Section, ...]

    @property
    def figures(self) -> tuple[Figure, ...]:
        """Every figure, in order."""
        return tuple(block for section in self.sections for block in section.blocks if isinstance(block, Figure))

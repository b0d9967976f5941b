"""The table of a history: one line a figure, whoever measured it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, fields
from datetime import datetime
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from precision.errors import UsageError

Kind = Literal["latency", "memory", "error", "nonfinite"]

HASH_LENGTH = 8  # of commits, as asv shows them

# The figures that share these are one series: the same thing measured at one commit after the other.
SERIES = ["source", "machine", "torch", "benchmark", "version"]


@dataclass(frozen=True, slots=True)  # a store may hold a million
class Figure:
    """One number that was measured at one commit. Lower is better, in every kind."""

    source: str  # asv, pytest-benchmark or store
    machine: str
    torch: str
    benchmark: str  # with its parameters
    version: str  # of the benchmark: figures of unlike versions say nothing about each other
    kind: Kind
    commit: str  # its short hash; for the store, the version and the digest of the code
    date: datetime  # of the commit; for the store, of the run
    measured: datetime
    value: float  # seconds, bytes, an error in the unit of the tensor, or a count
    low: float | None = None  # the interval of a latency, where its source has one
    high: float | None = None


def kind_of(name: str) -> Kind:
    """What a figure of that name measures; a name that says nothing else is an error's."""
    if "nonfinite" in name:
        return "nonfinite"
    if "mem" in name:
        return "memory"
    if name.startswith("time_") or "latency" in name:
        return "latency"
    return "error"


def make_history(figures: Iterable[Figure]) -> pd.DataFrame:
    """Figures as a table with the fields of Figure as columns, the oldest commit first.

    Of a figure that was measured again at the same commit the newest value stays.
    """
    names = [field.name for field in fields(Figure)]
    frame = pd.DataFrame.from_records(map(attrgetter(*names), figures), columns=names)
    frame = frame.sort_values(["date", "commit", "measured"], kind="stable")
    return frame.drop_duplicates([*SERIES, "commit"], keep="last", ignore_index=True)


def read_json(path: Path, program: str) -> Any:
    """The content of a result file; raises UsageError when it is no JSON object."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{str(path)!r} is no result file of {program}: {error}") from None
    if not isinstance(content, dict):
        raise UsageError(f"{str(path)!r} is no result file of {program}: it holds no JSON object")
    return content

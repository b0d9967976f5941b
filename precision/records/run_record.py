"""What a store knows of a run beside its rows."""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any


@dataclass(frozen=True)
class RunRecord:
    """One run; `finished` and `seconds` are empty while it is under way.

    `seconds`: by part of the work, where the time went; in a run that was stopped, that of its last part.
    """

    id: int
    name: str
    title: str
    config: str
    code: str
    environment: Mapping[str, Any]
    started: str
    finished: str | None
    seconds: Mapping[str, float]


def read_record(cells: sqlite3.Row) -> RunRecord:
    """A line of the table of runs; raises ValueError when a cell holds what was never written there."""
    try:
        record = _as_record(cells)
        datetime.fromisoformat(record.started)
        sound = all(isinstance(text, str) for text in (record.name, record.title, record.config, record.code))
        sound &= isinstance(record.environment, dict) and all(map(math.isfinite, record.seconds.values()))
    except (AttributeError, IndexError, RecursionError, TypeError, ValueError):
        sound = False
    if not sound:
        raise ValueError(f"run {cells['id']} is damaged")
    return record


def _as_record(cells: sqlite3.Row) -> RunRecord:
    return RunRecord(
        id=cells["id"],
        name=cells["name"],
        title=cells["title"],
        config=cells["config"],
        code=cells["code"],
        environment=json.loads(cells["environment"]),
        started=cells["started"],
        finished=cells["finished"],
        seconds=json.loads(cells["seconds"] or "{}"),
    )

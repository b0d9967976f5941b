"""Runs of the store, as a history over versions of the code."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import fields
from datetime import datetime
from pathlib import Path
from typing import Any

import pandas as pd

from precision.history.figures import Figure, kind_of
from precision.problem import Shape, digest_of
from precision.records.run_record import RunRecord
from precision.records.store import Store

_COLUMNS = ("out_max_abs", "out_rms", "rows_nonfinite", "latency", "peak_memory")
_NAMED = ("method", "inputs", "dtype", "scale", "mask", "seed")
_SHAPE = tuple(field.name for field in fields(Shape))
_READ = ["case", *_NAMED, *_SHAPE, *_COLUMNS, "latency_low", "latency_high"]


def read_store(path: Path) -> Iterator[Figure]:
    """Errors, non-finite rows, latency and memory of every case that has them, run by run."""
    with Store(path, create=False) as store:
        for run in store.runs.all():
            yield from _figures(run, store.rows.frame(run.id))


def _figures(run: RunRecord, frame: pd.DataFrame) -> Iterator[Figure]:
    started = datetime.fromisoformat(run.started)
    # Runs whose environments differ in anything but the torch version are machines of their own.
    surroundings = {key: value for key, value in run.environment.items() if key != "torch"}
    machine = f"{surroundings.get('gpu', surroundings.get('cpu', 'unknown'))} {digest_of(surroundings)[:4]}"
    for row in frame[_READ].to_dict("records"):  # all columns would take most of the time
        shape = Shape(**{name: row[name] for name in _SHAPE})
        parameters = f"({', '.join(str(row[name]) for name in _NAMED)}, {shape})"
        for column in _COLUMNS:
            if pd.isna(row[column]):
                continue
            yield Figure(
                source="store",
                machine=machine,
                torch=str(run.environment.get("torch", "")),
                benchmark=f"{column}{parameters}",
                version=str(row["case"]),
                kind=kind_of(column),
                commit=run.code,
                date=started,
                measured=started,
                value=float(row[column]),
                low=_end(row, f"{column}_low"),
                high=_end(row, f"{column}_high"),
            )


def _end(row: dict[Hashable, Any], name: str) -> float | None:
    return None if pd.isna(row.get(name)) else float(row[name])

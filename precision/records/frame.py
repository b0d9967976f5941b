"""Rows as a pandas DataFrame, with the statistics that are derived when rows are read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy
import pandas as pd

from precision.errors import UsageError
from precision.records.columns import COLUMNS, LATENCY_COLUMNS, Column
from precision.records.row import Status
from precision.records.statistics import summarise_latency

_PANDAS_TYPES: dict[type, Any] = {str: "string", int: "Int64", float: "Float64", bool: "boolean"}
_WORDS = {str: "text", int: "whole number", float: "number", bool: "yes or no"}


def make_frame(records: Sequence[tuple[Any, ...]]) -> pd.DataFrame:
    """One line a row; a cell that was not measured is <NA>, never NaN.

    Raises UsageError on a cell of another type than its column's, or a status that there is not.
    """
    found = pd.DataFrame.from_records(records, columns=[column.name for column in COLUMNS])
    frame = pd.DataFrame({column.name: _typed(found[column.name], column) for column in COLUMNS})
    if unknown := set(frame["status"].fillna("")) - set(Status):
        raise _damaged(f"a row with the status {min(unknown)!r}")
    forward, backward = (_summaries(frame[name]) for name in ("latency_samples", "backward_latency_samples"))
    names = [column.name for column in LATENCY_COLUMNS]
    derived = pd.DataFrame([(*f, *b) for f, b in zip(forward, backward, strict=True)], columns=names)
    derived = derived.astype({column.name: _PANDAS_TYPES[column.type] for column in LATENCY_COLUMNS})
    return pd.concat([frame, derived], axis=1)


def _typed(cells: pd.Series[Any], column: Column) -> pd.Series[Any]:
    try:
        with numpy.errstate(invalid="raise"):  # a float beyond all integers
            typed: pd.Series[Any] = cells.astype(_PANDAS_TYPES[column.type])
    except (ArithmeticError, TypeError, ValueError):
        raise _damaged(f"a cell of {column.name} that is no {_WORDS[column.type]}") from None
    return typed


def _summaries(samples: pd.Series[str]) -> list[tuple[float | None, float | None, float | None, int]]:
    """Median, interval and count of each row's samples."""
    values = [read_samples(text) for text in samples.fillna("")]
    return [summarise_latency(each) if each else (None, None, None, 0) for each in values]


def read_samples(text: str) -> list[float]:
    """The latency samples of a cell in seconds, none in an empty one; raises UsageError on anything else."""
    try:
        return [float(value) for value in json.loads(text)] if text else []
    except (ArithmeticError, RecursionError, TypeError, ValueError):
        raise _damaged("latency samples that are no list of numbers") from None


def _damaged(what: str) -> UsageError:
    return UsageError(f"the store holds {what}; it is damaged, or another program wrote to it")

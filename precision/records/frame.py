"""Rows as a pandas DataFrame, with the statistics that are derived when rows are read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pandas as pd

from precision.records.columns import COLUMNS, LATENCY_COLUMNS
from precision.records.statistics import summarise_latency

_PANDAS_TYPES = {str: "string", int: "Int64", float: "Float64", bool: "boolean"}


def make_frame(records: Sequence[tuple[Any, ...]]) -> pd.DataFrame:
    """One line a row; a cell that was not measured is <NA>, never NaN."""
    frame = pd.DataFrame.from_records(records, columns=[column.name for column in COLUMNS])
    frame = frame.astype({column.name: _PANDAS_TYPES[column.type] for column in COLUMNS})
    forward, backward = (_summaries(frame[name]) for name in ("latency_samples", "backward_latency_samples"))
    names = [column.name for column in LATENCY_COLUMNS]
    derived = pd.DataFrame([(*f, *b) for f, b in zip(forward, backward, strict=True)], columns=names)
    derived = derived.astype({column.name: _PANDAS_TYPES[column.type] for column in LATENCY_COLUMNS})
    return pd.concat([frame, derived], axis=1)


def _summaries(samples: pd.Series[str]) -> list[tuple[float | None, float | None, float | None, int]]:
    """Median, interval and count of each row's samples."""
    values = [json.loads(text) for text in samples.fillna("[]")]
    return [summarise_latency(each) if each else (None, None, None, 0) for each in values]

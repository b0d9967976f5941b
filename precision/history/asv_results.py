"""asv's result files: RESULTS_DIR/MACHINE/COMMIT-ENVIRONMENT.json, version 2 of its documented format."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from precision.errors import UsageError
from precision.history.figures import HASH_LENGTH, Figure, kind_of, read_json

_FORMAT = 2
_NOT_RESULTS = ("machine.json", "benchmarks.json")


def read_asv(folder: Path) -> Iterator[Figure]:
    """Every figure under asv's results_dir; raises UsageError on a file that cannot be understood.

    A benchmark that failed (null) or was skipped (NaN) has no figure: our benchmarks never hand asv a NaN.
    """
    for path in sorted(folder.glob("*/*.json")):
        if path.name not in _NOT_RESULTS:
            yield from _read_file(path)


def _read_file(path: Path) -> Iterator[Figure]:
    content = read_json(path, "asv")
    if content.get("version") != _FORMAT:
        raise UsageError(
            f"{str(path)!r} has version {content.get('version')} of asv's result format and not {_FORMAT}; "
            "`asv update` brings older files up to date"
        )
    try:
        for name, cells in content["results"].items():
            result = dict(zip(content["result_columns"], cells, strict=False))  # cells at the end may be left out
            yield from _figures(content, name, result)
    except (KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{str(path)!r} is no result file of asv: {error!r} is missing or wrong") from None


def _figures(content: dict[str, Any], name: str, result: dict[str, Any]) -> Iterator[Figure]:
    combinations = itertools.product(*result["params"])
    values = result["result"] or []
    # Only benchmarks that are sampled have intervals; after `asv run --quick` they are infinite.
    lows, highs = (result.get(f"stats_ci_99_{end}") or [None] * len(values) for end in "ab")
    for parameters, value, low, high in zip(combinations, values, lows, highs, strict=False):
        if value is None or math.isnan(value):
            continue
        yield Figure(
            source="asv",
            machine=content["params"]["machine"],
            torch=content["params"].get("torch", ""),
            benchmark=f"{name}({', '.join(text.strip(chr(39)) for text in parameters)})",
            version=str(result["version"]),
            kind=kind_of(name.rsplit(".", 1)[-1]),
            commit=content["commit_hash"][:HASH_LENGTH],
            date=_time(content["date"]),
            measured=_time(result["started_at"]),
            value=float(value),
            low=low,
            high=high,
        )


def _time(milliseconds: float) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1e3, UTC)

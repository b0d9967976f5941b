"""pytest-benchmark's result files, as --benchmark-autosave and --benchmark-json write them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from precision.errors import UsageError
from precision.history.figures import HASH_LENGTH, Figure, kind_of, read_json


def read_pytest_benchmark(folder: Path) -> Iterator[Figure]:
    """The median latency and the numbers of extra_info of every test; raises UsageError on a file of another kind."""
    for path in sorted(folder.rglob("*.json")):
        content = read_json(path, "pytest-benchmark")
        try:
            for test in content["benchmarks"]:
                yield from _figures(content, test)
        except (KeyError, TypeError, ValueError) as error:
            raise UsageError(
                f"{str(path)!r} is no result file of pytest-benchmark: {error!r} is missing or wrong"
            ) from None


def _figures(content: dict[str, Any], test: dict[str, Any]) -> Iterator[Figure]:
    numbers = {name: value for name, value in test["extra_info"].items() if isinstance(value, int | float)}
    commit, machine = content["commit_info"], content["machine_info"]
    for name, value in {"latency": test["stats"]["median"], **numbers}.items():
        yield Figure(
            source="pytest-benchmark",
            machine=machine["node"],
            torch=machine.get("torch", ""),
            benchmark=f"{test['fullname']} {name}",
            version="",
            kind=kind_of(name),
            commit=commit["id"][:HASH_LENGTH] + (" (changed)" if commit["dirty"] else ""),
            date=datetime.fromisoformat(commit["time"]).astimezone(UTC),
            measured=datetime.fromisoformat(content["datetime"]).astimezone(UTC),
            value=float(value),
        )

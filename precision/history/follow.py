"""From result files to one table and a verdict: what `precision history` does."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from precision.errors import UsageError
from precision.history.asv_results import read_asv
from precision.history.changes import list_changes
from precision.history.figures import Figure, make_history
from precision.history.gates import Limit, find_breaches
from precision.history.pytest_results import read_pytest_benchmark
from precision.history.store_results import read_store
from precision.records.store import DEFAULT_STORE
from precision.report.show import plural

_CHANGES_SHOWN = 5  # a kind


@dataclass(frozen=True)
class Place:
    """Where the results of a program are looked for, and what puts some there."""

    program: str
    usual: Path
    read: Callable[[Path], Iterator[Figure]]
    command: str


_PLACES = {
    "asv": Place("asv", Path(".asv") / "results", read_asv, "asv run --quick HEAD^!"),
    "pytest": Place(
        "pytest-benchmark", Path(".benchmarks"), read_pytest_benchmark, "pytest --benchmark-only --benchmark-autosave"
    ),
    "store": Place("store", DEFAULT_STORE, read_store, "precision run"),
}


@dataclass(frozen=True)
class Looked:
    """What was found in a place: nothing, too, when there is no such path."""

    place: Place
    path: Path
    figures: list[Figure]

    def __str__(self) -> str:
        """One sentence, with the command that would find something here where there is nothing."""
        if not self.figures:
            return f"{self.place.program}: nothing in {self.path}; `{self.place.command}` puts results there"
        commits = len({figure.commit for figure in self.figures})
        return (
            f"{self.place.program}: {plural(len(self.figures), 'figure')} of {plural(commits, 'commit')} in {self.path}"
        )


@dataclass(frozen=True)
class History:
    """What is known of older commits, and what is wrong with the newest."""

    frame: pd.DataFrame  # the fields of figures.Figure
    breaches: pd.DataFrame  # gates.BREACH_COLUMNS
    looked: tuple[Looked, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether nothing is wrong now."""
        return self.breaches.empty

    @property
    def changes(self) -> pd.DataFrame:
        """The benchmarks that grew most, a few of each kind."""
        return list_changes(self.frame, most=_CHANGES_SHOWN)

    @property
    def sentences(self) -> list[str]:
        """One line a breach, with the commit and the benchmark; or one line that says that there is none."""
        if self.passed:
            commits, series = self.frame["commit"].nunique(), self.frame["benchmark"].nunique()
            alone = "; a second commit would show what moved" if commits == 1 else ""
            return [f"nothing is wrong in {plural(series, 'benchmark')} over {plural(commits, 'commit')}{alone}"]
        sentence = "{commit}: {benchmark} is {value:.3g}, allowed {allowed:.3g}, {reason}"
        return [sentence.format_map(row) for row in self.breaches.to_dict("records")]

    def to_json(self) -> dict[str, Any]:
        """The verdict and the breaches as JSON has them: a number that is not finite is null."""
        rows = json.loads(self.breaches.to_json(orient="records", date_format="iso"))
        return {"verdict": "pass" if self.passed else "fail", "rows": rows}


def follow(
    *,
    asv: Path | None = None,
    pytest: Path | None = None,
    store: Path | None = None,
    limits: Sequence[str] = (),
) -> History:
    """Read asv's results_dir, pytest-benchmark's storage and a store, and hold them to the limits (`PATTERN=NUMBER`).

    When no source is named, all that are in their usual places are read. Raises UsageError when a named one is
    missing or cannot be read, and when there is nothing to read.
    """
    parsed = [Limit.parse(text) for text in limits]
    looked = tuple(_look({"asv": asv, "pytest": pytest, "store": store}))
    frame = make_history(figure for each in looked for figure in each.figures)
    if frame.empty:
        raise UsageError(f"there is no result to follow; {'; '.join(map(str, looked))}")
    return History(frame, find_breaches(frame, parsed), looked)


def _look(named: dict[str, Path | None]) -> Iterator[Looked]:
    """Read the named sources, or else those that are in their usual place."""
    use_usual = not any(named.values())
    for name, place in _PLACES.items():
        path = named[name]
        if path is not None and not path.exists():
            raise UsageError(f"there is no {str(path)!r} to read results of {name} from")
        if path is not None:
            yield Looked(place, path, list(place.read(path)))
        elif use_usual:
            yield Looked(place, place.usual, list(place.read(place.usual)) if place.usual.exists() else [])

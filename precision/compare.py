"""Two runs side by side: what changed between two torch versions, two machines or two states of the code.

Cases are matched by their key, which holds the problem and the method and nothing of the machine, so that both
runs solved the very same problem.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from precision.errors import UsageError
from precision.records.run_record import RunRecord
from precision.records.show import ROWS
from precision.report.rows import measured_rows
from precision.report.source import Source
from precision.report.verdict.noise import noise_of

# A kernel that sums in another order has another error: by less than this on the thousands of elements of a case.
_ERROR_FACTOR = 1.5
# Latencies of two runs were not sampled in turns, so a smaller difference may be the machine's.
_LATENCY_FACTOR = 1.3
_IDENTITY = ("case", "method", "inputs", "dtype", "scale", "mask", "q_len", "kv_len", "d_k")
NARROW = replace(ROWS, spare=("case",))  # on a terminal that has no room for all of that
_GRADIENTS = ("dq", "dk", "dv")
_COUNTS = ("rows_nonfinite", "rows_nan_lost", "rows_masked_wrong", *(f"{name}_nonfinite" for name in _GRADIENTS))
_ERRORS = tuple(f"{name}_rms" for name in ("out", *_GRADIENTS))

Record = dict[Hashable, Any]


@dataclass(frozen=True)
class RunComparison:
    """`rows`: one line a common case with `verdict` (worse, better, other or same) and `why`.

    `environment` maps what differs between the environments to its two values; `only` counts the cases that one of
    the runs has alone, of base and of new. `noise` says in which of them the machine was busy: then no latency is
    judged.
    """

    rows: pd.DataFrame
    environment: dict[str, tuple[object, object]]
    only: tuple[int, int]
    noise: dict[str, str]

    @property
    def verdict(self) -> str:
        """`fail` when a case is worse in the new run, else `pass`."""
        return "fail" if (self.rows["verdict"] == "worse").any() else "pass"

    def summary(self) -> str:
        """One sentence."""
        counts = self.rows["verdict"].value_counts()
        parts = [f"{counts[word]} {word}" for word in ("worse", "better", "other", "same") if word in counts]
        alone = f"; only in base {self.only[0]}, only in new {self.only[1]}" if any(self.only) else ""
        return f"{len(self.rows)} common cases: {', '.join(parts)}{alone}."

    @property
    def sentences(self) -> list[str]:
        """What differs between the environments, what could not be judged, and the summary."""
        differing = [f"{key}: {before} → {after}" for key, (before, after) in self.environment.items()]
        busy = [f"in {run} {noise}" for run, noise in self.noise.items()]
        unjudged = [f"Latencies are not compared, for the machine was busy: {'; '.join(busy)}."] if busy else []
        return [*differing, *unjudged, self.summary()]


def compare_runs(base: tuple[RunRecord, pd.DataFrame], new: tuple[RunRecord, pd.DataFrame]) -> RunComparison:
    """Compare the rows of two runs; raises UsageError when they have no case in common."""
    before, after = (_by_case(frame) for _, frame in (base, new))
    common = before.index.intersection(after.index, sort=False)
    if common.empty:
        raise UsageError("the two runs have no case in common; compare runs of the same configuration")
    noise = {name: said for name, run in (("base", base), ("new", new)) if (said := _noise(*run))}
    pairs = zip(_records(before, common), _records(after, common), strict=True)
    judged = [_judge(*pair, is_quiet=not noise) for pair in pairs]
    rows = after.loc[common].reset_index()[list(_IDENTITY)]
    rows = pd.concat([pd.DataFrame(judged, columns=["verdict", "why"]), rows], axis=1)
    environments = (base[0].environment, new[0].environment)
    differing = {
        key: (environments[0].get(key), environments[1].get(key))
        for key in sorted({*environments[0], *environments[1]})
        if environments[0].get(key) != environments[1].get(key)
    }
    return RunComparison(rows, differing, (len(before) - len(common), len(after) - len(common)), noise)


def _noise(record: RunRecord, frame: pd.DataFrame) -> str | None:
    """What the report says of a busy machine, and the same rule for the latencies of the zoo, which it leaves out."""
    return noise_of(Source(record, frame).rows) or noise_of(measured_rows(frame))


def _by_case(frame: pd.DataFrame) -> pd.DataFrame:
    """One line a case: the one with a latency, when two sweeps asked for the same."""
    ordered = frame.sort_values("latency", na_position="last", kind="stable")
    return ordered.drop_duplicates("case").set_index("case").loc[frame["case"].unique()]


def _records(frame: pd.DataFrame, cases: pd.Index[str]) -> list[Record]:
    """What is judged, a dictionary a case, which costs a hundredth of a line of the frame."""
    names = ["status", *_COUNTS, *_ERRORS, "latency", "latency_low", "latency_high"]
    return frame.loc[cases, names].to_dict("records")


def _judge(before: Record, after: Record, is_quiet: bool) -> tuple[str, str]:
    if before["status"] != after["status"]:
        verdict = {"ok": "better"}.get(after["status"], "worse" if before["status"] == "ok" else "other")
        return verdict, f"{before['status']} → {after['status']}"
    if after["status"] != "ok":
        return "same", ""
    changes = [*_counts(before, after), *_errors(before, after)]
    if is_quiet:
        changes += _latency(before, after)
    for verdict in ("worse", "better"):
        if reasons := [why for word, why in changes if word == verdict]:
            return verdict, "; ".join(reasons)
    return "same", ""


def _counts(before: Record, after: Record) -> list[tuple[str, str]]:
    return [
        ("worse" if after[name] > before[name] else "better", f"{name} {before[name]} → {after[name]}")
        for name in _COUNTS
        if _both(before, after, name) and after[name] != before[name]
    ]


def _errors(before: Record, after: Record) -> list[tuple[str, str]]:
    return [change for name in _ERRORS if _both(before, after, name) for change in _ratio(before, after, name)]


def _ratio(before: Record, after: Record, name: str) -> list[tuple[str, str]]:
    low, high = sorted((before[name], after[name]))
    if high <= _ERROR_FACTOR * low:
        return []
    return [("worse" if after[name] > before[name] else "better", f"{name} {before[name]:.3g} → {after[name]:.3g}")]


def _latency(before: Record, after: Record) -> list[tuple[str, str]]:
    """A difference counts when it is large and the intervals of the two medians do not touch."""
    if not _both(before, after, "latency_low"):
        return []
    factor = after["latency"] / before["latency"]
    why = f"latency × {factor:.2f}"
    if factor > _LATENCY_FACTOR and after["latency_low"] > before["latency_high"]:
        return [("worse", why)]
    if factor < 1 / _LATENCY_FACTOR and after["latency_high"] < before["latency_low"]:
        return [("better", why)]
    return []


def _both(before: Record, after: Record, name: str) -> bool:
    return not (pd.isna(before[name]) or pd.isna(after[name]))

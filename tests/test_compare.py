"""Two runs side by side: each kind of change, in both directions."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from precision.compare import RunComparison, compare_runs
from precision.errors import UsageError
from precision.records.read_run import read_run
from precision.records.row import Cell, Row
from precision.records.run_record import RunRecord
from precision.records.store import Store
from precision.report.source import Source
from precision.report.verdict.methods import best_methods

IDENTITY: dict[str, Cell] = {
    "sweep": "s",
    "method": "eager",
    "inputs": "normal",
    "dtype": "fp16",
    "max_subtraction": True,
}
ENVIRONMENT = {"torch": "2.13.0", "threads": 2}
OK: dict[str, Cell] = {"status": "ok", "rows": 8, "rows_nonfinite": 0, "out_rms": 1e-4, "out_rel_l2": 1e-3}


def recorded(path: Path, cells: dict[str, Cell], case: str = "c", **environment: Any) -> tuple[RunRecord, pd.DataFrame]:
    with Store(path) as store:
        run = store.runs.begin("name", "title", "", "code", {**ENVIRONMENT, **environment})
        store.rows.add(run, {0: Row({**IDENTITY, "case": case, **cells})})
        return store.runs.find(run), store.rows.frame(run)


@pytest.mark.parametrize(
    ("before", "after", "verdict", "why"),
    [
        (OK, OK, "same", ""),
        (OK, {**OK, "out_rms": 1.4e-4}, "same", ""),
        (OK, {**OK, "out_rms": 2e-4}, "worse", "out_rms 0.0001 → 0.0002"),
        ({**OK, "dv_rms": 2e-4}, {**OK, "dv_rms": 1e-4}, "better", "dv_rms 0.0002 → 0.0001"),
        ({**OK, "dv_rms": 2e-4}, OK, "same", ""),  # not measured in both
        (OK, {**OK, "rows_nonfinite": 1}, "worse", "rows_nonfinite 0 → 1"),
        ({**OK, "rows_nan_lost": 2}, {**OK, "rows_nan_lost": 0}, "better", "rows_nan_lost 2 → 0"),
        (OK, {**OK, "out_rms": 1e-5, "rows_nonfinite": 1}, "worse", "rows_nonfinite 0 → 1"),
        (OK, {"status": "refused", "note": "why"}, "worse", "ok → refused"),
        ({"status": "absent", "note": "why"}, OK, "better", "absent → ok"),
        ({"status": "absent", "note": "why"}, {"status": "refused", "note": "why"}, "other", "absent → refused"),
        ({"status": "absent", "note": "why"}, {"status": "absent", "note": "other"}, "same", ""),
        (
            {**OK, "latency_samples": str([1.0 + i / 100 for i in range(9)])},
            {**OK, "latency_samples": str([1.5 + i / 100 for i in range(9)])},
            "worse",
            "latency × 1.48",
        ),
        (
            {**OK, "latency_samples": str([1.5 + i / 100 for i in range(9)])},
            {**OK, "latency_samples": str([1.0 + i / 100 for i in range(9)])},
            "better",
            "latency × 0.68",
        ),
        (  # the medians differ as much, but the intervals touch
            {**OK, "latency_samples": str([1.0, 1.0, 1.0, 1.0, 1.0, 1.29, 1.29, 1.29, 1.29])},
            {**OK, "latency_samples": str([1.28, 1.28, 1.28, 1.28, 1.34, 1.4, 1.4, 1.4, 1.4])},
            "same",
            "",
        ),
    ],
)
def test_each_kind_of_change_is_named(
    tmp_path: Path, before: dict[str, Cell], after: dict[str, Cell], verdict: str, why: str
) -> None:
    path = tmp_path / "s.sqlite"
    found = compare_runs(recorded(path, before), recorded(path, after))
    assert found.rows[["verdict", "why"]].to_numpy().tolist() == [[verdict, why]]
    assert found.verdict == ("fail" if verdict == "worse" else "pass")


QUIET = {**OK, "latency_samples": str([1.0 + i / 100 for i in range(9)])}
SLOWER = {**OK, "latency_samples": str([1.5 + i / 100 for i in range(9)])}
# The interval of the median of nine reaches from the second to the eighth: 1.2 over a median of 2.
BUSY = {**OK, "latency_samples": str([1.4, 1.4, 1.6, 1.8, 2.0, 2.2, 2.4, 2.6, 2.6])}


@pytest.mark.parametrize(
    ("before", "after", "named"),
    [(BUSY, QUIET, ["base"]), (QUIET, BUSY, ["new"]), (BUSY, BUSY, ["base", "new"]), (QUIET, SLOWER, [])],
)
def test_latencies_are_not_ranked_where_the_machine_was_busy(
    tmp_path: Path, before: dict[str, Cell], after: dict[str, Cell], named: list[str]
) -> None:
    path = tmp_path / "s.sqlite"
    base, new = recorded(path, before), recorded(path, after)
    found = compare_runs(base, new)
    said = [sentence for sentence in found.sentences if "Latencies are not compared" in sentence]
    assert [run for run in ("base", "new") if f"in {run} half" in " ".join(said)] == named
    assert found.rows["verdict"].tolist() == (["same"] if named else ["worse"])
    # The rule is that of the report.
    rows = [Source(*run).rows.assign(method=method, problem="p") for run in (base, new) for method in ("a", "b")]
    is_busy = ["busy" in (best_methods(pd.concat(rows[i : i + 2])) or "") for i in (0, 2)]
    assert [run for run, busy in zip(("base", "new"), is_busy, strict=True) if busy] == named


def test_latencies_of_the_zoo_are_not_ranked_either(tmp_path: Path) -> None:
    path, zoo = tmp_path / "s.sqlite", {"inputs": "zoo/first-call"}
    found = compare_runs(recorded(path, {**BUSY, **zoo}), recorded(path, {**SLOWER, **zoo, "latency_samples": "[9.0]"}))
    assert list(found.noise) == ["base"] and found.verdict == "pass"


def test_a_busy_machine_does_not_hide_a_larger_error(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    found = compare_runs(recorded(path, BUSY), recorded(path, {**BUSY, "out_rms": 2e-4}))
    assert found.rows[["verdict", "why"]].to_numpy().tolist() == [["worse", "out_rms 0.0001 → 0.0002"]]


def compared(tmp_path: Path) -> RunComparison:
    base = recorded(tmp_path / "a.sqlite", OK, torch="2.11.0")
    return compare_runs(base, recorded(tmp_path / "b.sqlite", OK, gpu="none"))


def test_what_differs_between_the_environments_is_said(tmp_path: Path) -> None:
    assert compared(tmp_path).environment == {"gpu": (None, "none"), "torch": ("2.11.0", "2.13.0")}
    assert compared(tmp_path).summary() == "1 common cases: 1 same."


def test_runs_without_a_common_case_cannot_be_compared(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    with pytest.raises(UsageError, match="no case in common"):
        compare_runs(recorded(path, OK, "one"), recorded(path, OK, "two"))


def test_a_run_is_named_by_number_file_or_both(tmp_path: Path) -> None:
    here, there = tmp_path / "here.sqlite", tmp_path / "there.sqlite"
    for path in (here, there, there):
        recorded(path, OK)
    assert read_run("1", here)[0].id == 1
    assert read_run(str(there), here)[0].id == 2
    assert read_run(f"{there}:1", here)[0].id == 1
    for wrong in ("7", "nowhere.sqlite", f"{there}:9", "nowhere.sqlite:1"):
        with pytest.raises(UsageError):
            read_run(wrong, here)

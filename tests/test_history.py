"""History: result files of asv, of pytest-benchmark and our store in one table, and gates on it."""

from __future__ import annotations

import json
import math
import xml.etree.ElementTree as ElementTree
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from precision.errors import UsageError
from precision.history.asv_results import read_asv
from precision.history.changes import list_changes
from precision.history.figures import Figure, kind_of, make_history
from precision.history.follow import follow
from precision.history.gates import Limit, find_breaches
from precision.history.page import write_history
from precision.history.plot import draw_history
from precision.history.pytest_results import read_pytest_benchmark
from precision.history.store_results import read_store
from precision.records.row import Row
from precision.records.store import Store

START = datetime(2026, 1, 1, tzinfo=UTC)


def figure(commit: int, value: float, **changed: Any) -> Figure:
    """A figure of commit number `commit`, called `c0`, `c1`, ..."""
    date = START + timedelta(days=commit)
    cells: dict[str, Any] = {
        "source": "asv",
        "machine": "m",
        "torch": "2.13.0",
        "benchmark": "error.Forward.track_out_rms(eager, fp32)",
        "version": "1",
        "kind": "error",
        "commit": f"c{commit}",
        "date": date,
        "measured": date,
        "value": value,
    }
    return Figure(**{**cells, **changed})


def series(*values: float, **changed: Any) -> list[Figure]:
    """One value a commit, the oldest first."""
    return [figure(commit, value, **changed) for commit, value in enumerate(values)]


COUNT = {"benchmark": "incidence.Forward.track_nonfinite(eager, fp16)", "kind": "nonfinite"}


def breaches(figures: list[Figure], *limits: str) -> list[tuple[str, str, float]]:
    found = find_breaches(make_history(figures), [Limit.parse(limit) for limit in limits])
    return [(row["commit"], row["reason"], row["value"]) for row in found.to_dict("records")]


# Gates


def test_a_clean_history_has_no_breach() -> None:
    clean = [*series(1e-7, 1.2e-7, 0.9e-7), *series(0, 0, 0, **COUNT)]
    assert breaches(clean, "*track_out_rms*=2e-7") == []


def test_a_value_above_its_limit_is_a_breach_since_the_commit_that_brought_it() -> None:
    assert breaches(series(1e-7, 1e-7, 3e-3, 2e-3), "*=1e-6") == [("c2", "limit *", 3e-3)]


def test_a_value_at_its_limit_is_none() -> None:
    assert breaches(series(1e-6), "*=1e-6") == []


def test_a_latency_is_judged_by_its_interval() -> None:
    intervals = [(0.9, 1.1), (0.9, 1.3), (1.25, 1.4), (1.1, 1.4), (1.3, 1.5)]
    figures = [figure(commit, 1.2, low=low, high=high) for commit, (low, high) in enumerate(intervals)]
    assert breaches(figures[:2], "*=1.2") == []  # the second does not tell
    assert breaches(figures, "*=1.2") == [("c2", "limit *", 1.2)]  # nor does the fourth, and what was wrong stays so
    assert breaches([*figures, figure(5, 1.0, low=0.9, high=1.1)], "*=1.2") == []
    assert breaches([figure(0, 9.0, low=-math.inf, high=math.inf)], "*=1.2") == []  # a single sample tells nothing


def test_what_was_mended_is_no_breach_and_what_came_back_is_one_since_it_came_back() -> None:
    assert breaches(series(1.0, 9.0, 1.0), "*=2") == []
    assert breaches(series(1.0, 9.0, 1.0, 8.0), "*=2") == [("c3", "limit *", 8.0)]


def test_a_non_finite_count_must_not_rise_and_needs_no_limit() -> None:
    assert breaches(series(4, 4, 2, 2, **COUNT)) == []
    assert breaches(series(4, 0, 3, 3, **COUNT)) == [("c2", "non-finite count rose", 3.0)]
    assert breaches(series(4, 0, 3, 3, **COUNT), "*nonfinite*=3") == []  # a limit says what is allowed


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_value_that_is_not_finite_is_always_a_breach(value: float) -> None:
    ((commit, reason, _),) = breaches(series(1.0, value), "*=inf")
    assert (commit, reason) == ("c1", "not finite")


def test_the_last_limit_that_matches_counts() -> None:
    assert breaches(series(5.0), "*=1", "*out_rms*=9") == []
    assert breaches(series(5.0), "*out_rms*=9", "*=1") == [("c0", "limit *", 5.0)]


def test_figures_of_other_machines_torch_versions_and_benchmark_versions_are_other_series() -> None:
    for name in ("machine", "torch", "version", "source"):
        figures = [figure(0, 0, **COUNT), figure(1, 5, **{**COUNT, name: "other"})]
        assert breaches(figures) == []


def test_a_limit_knows_brackets_and_parameters() -> None:
    limit = Limit.parse("*(eager[max_subtraction=false], fp32*)=1e-6")
    assert limit.value == 1e-6
    assert limit.matches("error.Forward.track_out_rms(eager[max_subtraction=false], fp32, normal)")
    assert not limit.matches("error.Forward.track_out_rms(eager, fp32, normal)")


@pytest.mark.parametrize("text", ["", "1e-6", "=1", "a=", "a=b", "a=nan"])
def test_a_malformed_limit_is_a_mistake(text: str) -> None:
    with pytest.raises(UsageError, match="PATTERN=NUMBER"):
        Limit.parse(text)


def test_a_limit_that_guards_nothing_is_a_mistake() -> None:
    with pytest.raises(UsageError, match="matches no benchmark"):
        breaches(series(1.0), "*fp23*=1")


# The table


def test_the_table_is_in_the_order_of_the_commits_and_keeps_the_newest_measurement() -> None:
    again = figure(0, 7.0, measured=START + timedelta(days=30))
    history = make_history([figure(1, 2.0), again, figure(0, 1.0)])
    assert list(history["value"]) == [7.0, 2.0]


def test_changes_are_factors_and_for_counts_differences() -> None:
    figures = [*series(2.0, 3.0), *series(1.0, 1.0 + 1e-12, benchmark="still"), *series(0, 5, **COUNT)]
    changes = list_changes(make_history(figures)).set_index("kind")["change"]
    assert dict(changes) == {"error": 1.5, "nonfinite": 5.0}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("time_forward", "latency"),
        ("latency", "latency"),
        ("peakmem_forward", "memory"),
        ("track_peak_memory", "memory"),
        ("track_nonfinite", "nonfinite"),
        ("rows_nonfinite", "nonfinite"),
        ("track_out_rms", "error"),
        ("out_max_abs", "error"),
    ],
)
def test_the_name_says_the_kind(name: str, kind: str) -> None:
    assert kind_of(name) == kind


# asv


def write_asv(folder: Path, **changed: Any) -> Path:
    """A result file as asv's manual describes version 2 of the format."""
    content = {
        "version": 2,
        "commit_hash": "0123456789abcdef",
        "date": 1767225600000,  # 2026-01-01
        "env_name": "virtualenv-py3.11-torch2.13.0",
        "params": {"machine": "m", "python": "3.11", "torch": "2.13.0"},
        "result_columns": ["result", "params", "version", "started_at", "duration", "stats_ci_99_a", "stats_ci_99_b"],
        "results": {
            "latency.Forward.time_forward": [
                [0.5, None, math.nan, 0.25],
                [["'eager'", "'sdpa-math'"], ["'fp32'", "'fp16'"]],
                "1",
                1767225700000,
                1.0,
                [0.4, None, None, 0.2],
                [0.6, None, None, 0.3],
            ],
            "error.track_plain": [[1e-7], [], "1", 1767225700000],
            "error.track_broken": [None, [], "1", 1767225700000],
        },
        **changed,
    }
    path = folder / "m" / "01234567-virtualenv.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))
    (folder / "m" / "machine.json").write_text("{}")
    (folder / "benchmarks.json").write_text("{}")
    return path


def test_asv_results_are_read_and_holes_are_left_out(tmp_path: Path) -> None:
    write_asv(tmp_path)
    found = {each.benchmark: each for each in read_asv(tmp_path)}
    assert {name: each.value for name, each in found.items()} == {
        "latency.Forward.time_forward(eager, fp32)": 0.5,
        "latency.Forward.time_forward(sdpa-math, fp16)": 0.25,
        "error.track_plain()": 1e-7,
    }
    latency = found["latency.Forward.time_forward(eager, fp32)"]
    assert (latency.commit, latency.torch, latency.machine) == ("01234567", "2.13.0", "m")
    assert (latency.date, latency.kind) == (START, "latency")
    assert (latency.low, latency.high) == (0.4, 0.6)
    assert found["error.track_plain()"].low is None


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"version": 1}, "asv update"),
        ({"results": {"x": []}}, "missing or wrong"),
        ({"params": {}}, "missing or wrong"),
    ],
)
def test_other_result_files_of_asv_are_a_mistake(tmp_path: Path, changed: dict[str, Any], message: str) -> None:
    write_asv(tmp_path, **changed)
    with pytest.raises(UsageError, match=message):
        list(read_asv(tmp_path))


@pytest.mark.parametrize("text", ["", "[]", "{", "\udcff"])
def test_a_file_that_is_no_json_object_is_a_mistake(tmp_path: Path, text: str) -> None:
    write_asv(tmp_path).write_text(text, errors="surrogateescape")
    with pytest.raises(UsageError, match="no result file of asv"):
        list(read_asv(tmp_path))


# pytest-benchmark


def write_pytest(folder: Path, **extra: Any) -> None:
    content = {
        "machine_info": {"node": "m", "torch": "2.13.0+cpu"},
        "commit_info": {"id": "0123456789abcdef", "time": "2026-01-01T02:00:00+02:00", "dirty": False},
        "benchmarks": [{"fullname": "a.py::test_a[eager]", "extra_info": extra, "stats": {"median": 0.5}}],
        "datetime": "2026-01-02T00:00:00+00:00",
    }
    (folder / "Linux-CPython").mkdir(parents=True)
    (folder / "Linux-CPython" / "0001_0123.json").write_text(json.dumps(content))


def test_pytest_results_are_read_with_their_extra_numbers(tmp_path: Path) -> None:
    write_pytest(tmp_path, out_rms=1e-7, rows_nonfinite=0, note="text")
    found = {each.benchmark: (each.value, each.kind) for each in read_pytest_benchmark(tmp_path)}
    assert found == {
        "a.py::test_a[eager] latency": (0.5, "latency"),
        "a.py::test_a[eager] out_rms": (1e-7, "error"),
        "a.py::test_a[eager] rows_nonfinite": (0.0, "nonfinite"),
    }
    assert {each.date for each in read_pytest_benchmark(tmp_path)} == {START}
    assert {each.commit for each in read_pytest_benchmark(tmp_path)} == {"01234567"}


def test_other_json_files_are_a_mistake(tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text('{"benchmarks": [{}]}')
    with pytest.raises(UsageError, match="pytest-benchmark"):
        list(read_pytest_benchmark(tmp_path))


# The store


def write_store(path: Path, *counts: int) -> None:
    with Store(path) as store:
        for index, count in enumerate(counts):
            environment = {"torch": "2.13.0", "cpu": "chip", "threads": 2}
            run = store.begin_run("name", "title", "", f"0.1.0+{index}", environment)
            row: dict[str, Any] = {"case": "k", "status": "ok", "method": "eager", "inputs": "normal", "dtype": "fp16"}
            row |= {"scale": "none", "mask": "none", "seed": 0, "batch": 1, "q_heads": 2, "kv_heads": 2, "q_len": 8}
            row |= {"kv_len": 8, "d_k": 4, "d_v": 4, "rows": 16, "rows_nonfinite": count, "out_max_abs": 0.5}
            store.add(run, Row({**row, "latency_samples": "[3.0, 1.0, 2.0]"}))
            store.add(run, Row({"case": "l", "status": "refused", "note": "why", "method": "eager", **_shape()}))


def _shape() -> dict[str, int]:
    return {"batch": 1, "q_heads": 1, "kv_heads": 1, "q_len": 1, "kv_len": 1, "d_k": 1, "d_v": 1}


def test_the_store_is_a_history_over_code_versions(tmp_path: Path) -> None:
    write_store(tmp_path / "store.sqlite", 0, 3)
    found = list(read_store(tmp_path / "store.sqlite"))
    assert {each.commit for each in found} == {"0.1.0+0", "0.1.0+1"}
    name = "latency(eager, normal, fp16, none, none, 0, b1 h2 n8 d4)"
    assert [each.value for each in found if each.benchmark == name] == [2.0, 2.0]
    assert [each.value for each in found if each.kind == "nonfinite"] == [0.0, 3.0]
    assert len(found) == 6  # what was refused has no figures


# All together


def test_what_is_there_is_found_in_its_usual_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="no result to follow"):
        follow()
    write_asv(tmp_path / ".asv" / "results")
    write_pytest(tmp_path / ".benchmarks", rows_nonfinite=0)
    write_store(tmp_path / ".precision" / "store.sqlite", 0)
    history = follow()
    assert set(history.frame["source"]) == {"asv", "pytest-benchmark", "store"}
    assert history.passed
    assert history.to_json() == {"verdict": "pass", "rows": []}
    assert history.sentences == ["nothing is wrong in 8 benchmarks over 2 commits"]


def test_a_source_that_is_named_is_read_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_asv(tmp_path / ".asv" / "results")
    write_store(tmp_path / "other.sqlite", 0)
    assert set(follow(store=tmp_path / "other.sqlite").frame["source"]) == {"store"}


def test_a_source_that_is_named_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nowhere"):
        follow(asv=tmp_path / "nowhere")


def test_a_breach_is_named_with_its_commit_and_benchmark(tmp_path: Path) -> None:
    write_pytest(tmp_path / "results", rows_nonfinite=2, out_rms=math.nan)
    history = follow(pytest=tmp_path / "results", limits=["*rows_nonfinite=1"])
    assert not history.passed
    assert "01234567: a.py::test_a[eager] rows_nonfinite is 2, allowed 1, limit *rows_nonfinite" in history.sentences
    verdict = json.loads(json.dumps(history.to_json(), allow_nan=False))
    assert verdict["verdict"] == "fail"
    assert {row["benchmark"]: row["value"] for row in verdict["rows"]} == {
        "a.py::test_a[eager] out_rms": None,
        "a.py::test_a[eager] rows_nonfinite": 2,
    }


def test_the_page_shows_every_commit_and_names_what_is_wrong(tmp_path: Path) -> None:
    write_store(tmp_path / "store.sqlite", 0, 3)
    page = write_history(follow(store=tmp_path / "store.sqlite"), tmp_path / "out")
    text = page.read_text()
    assert "0.1.0+1: rows_nonfinite(eager, normal, fp16, none, none, 0, b1 h2 n8 d4) is 3, allowed 0" in text
    drawn = " ".join(ElementTree.parse(page.with_suffix(".svg")).getroot().itertext())
    for label in ("0.1.0+0", "0.1.0+1", "torch 2.13.0", "error / oldest", "non-finite", "rows_nonfinite(eager"):
        assert label in drawn
    written = pd.read_csv(page.with_suffix(".csv"))
    assert list(written["value"]) == [each.value for each in read_store(tmp_path / "store.sqlite")]


def test_a_figure_is_drawn_of_every_history() -> None:
    uneven = [
        *series(1.0, math.inf, math.nan),
        *series(0.0, 0.0, benchmark="track_exact"),
        *series(2, 3, **{**COUNT, "torch": "2.12.1"}),
    ]
    history = make_history(uneven)
    drawn = " ".join(ElementTree.fromstring(draw_history(history, find_breaches(history, []))).itertext())
    assert "torch 2.12.1" in drawn
    assert "torch 2.13.0" in drawn

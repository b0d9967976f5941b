"""Result files of asv, of pytest-benchmark and of our store as one table."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from made_history import COUNT, START, figure, series, write_asv, write_pytest, write_store

from precision.errors import UsageError
from precision.history.asv_results import read_asv
from precision.history.changes import list_changes
from precision.history.figures import kind_of, make_history
from precision.history.pytest_results import read_pytest_benchmark
from precision.history.store_results import read_store


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


def test_the_store_is_a_history_over_code_versions(tmp_path: Path) -> None:
    write_store(tmp_path / "store.sqlite", 0, 3)
    found = list(read_store(tmp_path / "store.sqlite"))
    assert {each.commit for each in found} == {"0.1.0+0", "0.1.0+1"}
    name = "latency(eager, normal, fp16, none, none, 0, b1 h2 n8 d4)"
    assert [each.value for each in found if each.benchmark == name] == [2.0, 2.0]
    assert [each.value for each in found if each.kind == "nonfinite"] == [0.0, 3.0]
    assert len(found) == 6  # what was refused has no figures

"""History from its sources to a verdict and a page."""

from __future__ import annotations

import json
import math
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pandas as pd
import pytest
from made_history import COUNT, series, write_asv, write_pytest, write_store

from precision.errors import UsageError
from precision.history.figures import make_history
from precision.history.follow import follow
from precision.history.gates import find_breaches
from precision.history.page import write_history
from precision.history.plot import draw_history
from precision.history.show import render
from precision.history.store_results import read_store


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


def test_it_says_where_it_looked_what_was_there_and_what_would_put_something_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(".benchmarks").mkdir()  # there, and empty
    with pytest.raises(UsageError) as nothing:
        follow()
    for words in (".asv/results", "`asv run", ".benchmarks", "`pytest --benchmark-only --benchmark-autosave`"):
        assert words in str(nothing.value)
    write_store(Path(".precision") / "store.sqlite", 0)
    history = follow()
    assert [str(looked).partition("; ")[0] for looked in history.looked] == [
        "asv: nothing in .asv/results",
        "pytest-benchmark: nothing in .benchmarks",
        f"store: {len(history.frame)} figures of 1 commit in .precision/store.sqlite",
    ]
    render(history)
    out = capsys.readouterr().out.splitlines()
    assert out[:3] == [str(looked) for looked in history.looked]
    assert out[3:] == history.sentences  # nothing moved, so there is no table
    assert out[3].endswith("over 1 commit; a second commit would show what moved")


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

"""Rows, the store that keeps them, and what is derived when they are read."""

import json
import math
import os
import sqlite3
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from precision.errors import UsageError
from precision.records.columns import BY_NAME, COLUMNS, LATENCY_COLUMNS
from precision.records.row import Cell, Row
from precision.records.statistics import summarise_latency
from precision.records.store import Store

IDENTITY: dict[str, Cell] = {"case": "c1", "sweep": "s", "problem": "p", "method": "eager", "dtype": "fp16"}
MEASURED: dict[str, Cell] = {"status": "ok", "rows": 4, "rows_nan": 0, "out_max_abs": 0.1 + 0.2}
ENVIRONMENT = {"torch": "2.13.0", "threads": 2}


def new_run(store: Store, code: str = "code", environment: dict[str, Any] = ENVIRONMENT) -> int:
    return store.runs.begin("name", "title", "text", code, environment)


def test_columns_are_named_once_and_documented() -> None:
    every = [*COLUMNS, *LATENCY_COLUMNS]
    assert len({column.name for column in every}) == len(every)
    assert all(column.meaning for column in every)
    assert [column.name for column in COLUMNS[:3]] == ["case", "status", "note"]
    assert BY_NAME["latency_first"].unit == "s"


@pytest.mark.parametrize(
    "cells",
    [
        {"status": "ok"},  # nothing measured
        {"status": "refused"},  # no reason
        {"status": "refused", "note": ""},
        {"status": "raised", "note": "why", "rows_nan": 0},  # a hole with a measurement
        {"status": "absent", "note": "why", "logit_std": 1.0},
        {"status": "fine", "note": "why"},
        {"status": "ok", "rows": 1, "max_error": 0.0},  # no such column
    ],
)
def test_a_row_that_contradicts_itself_raises(cells: dict[str, Cell]) -> None:
    with pytest.raises(ValueError, match=r"status|column|Status"):
        Row({**IDENTITY, **cells})


def test_rows_come_back_as_they_were_written(tmp_path: Path) -> None:
    row = Row({**IDENTITY, **MEASURED, "max_subtraction": False, "scale_value": math.inf, "latency_first": 5e-324})
    hole = Row({**IDENTITY, "case": "c2", "status": "refused", "note": 'd_v != d_k <script> "quoted" \''})
    with Store(tmp_path / "deep" / "s.sqlite") as store:
        run = new_run(store)
        store.rows.add(run, {0: row})
        store.rows.add(run, {0: hole})
        frame = store.rows.frame(run)
    assert list(frame.columns) == [column.name for column in (*COLUMNS, *LATENCY_COLUMNS)]
    for name, value in row.cells.items():
        assert frame[name][0] == value, name
    assert frame["out_max_ulp"][0] is pd.NA
    assert frame["note"][1] == hole.cells["note"]
    assert frame["out_max_abs"][1] is pd.NA


def test_latency_statistics_are_derived_from_the_samples(tmp_path: Path) -> None:
    samples = [7.0, 1.0, 2.0, 6.0, 3.0, 5.0, 4.0]
    with Store(tmp_path / "s.sqlite") as store:
        run = new_run(store)
        store.rows.add(run, {0: Row({**IDENTITY, **MEASURED, "latency_samples": json.dumps(samples)})})
        store.rows.add(run, {0: Row({**IDENTITY, **MEASURED, "case": "c2"})})
        frame = store.rows.frame(run)
    assert frame.loc[0, ["latency", "latency_low", "latency_high", "latency_count"]].tolist() == [4, 1, 7, 7]
    assert frame["latency"][1] is pd.NA


@pytest.mark.parametrize(
    # Rank of the lower end of the 95 % interval of the median: Conover 1999, table A3 (binomial, p = 1/2).
    ("count", "rank"),
    [(1, 0), (5, 0), (6, 1), (8, 1), (9, 2), (11, 2), (12, 3), (15, 4), (20, 6), (30, 10), (100, 40), (10_000, 4902)],
)
def test_the_interval_of_the_median_has_the_published_ranks(count: int, rank: int) -> None:
    summary = summarise_latency([float(i) for i in range(1, count + 1)])
    assert summary.samples == count
    assert (summary.low, summary.high) == ((rank, count + 1 - rank) if rank else (None, None))


def test_known_rows_are_those_of_the_same_code_and_environment_without_samples(tmp_path: Path) -> None:
    old = Row({**IDENTITY, **MEASURED, "rows_nan": 1})
    new = Row({**IDENTITY, **MEASURED, "rows_nan": 2, "latency_first": 1.0, "latency_samples": "[1.0]"})
    with Store(tmp_path / "s.sqlite") as store:
        store.rows.add(new_run(store), {0: old})
        store.rows.add(new_run(store), {0: new})
        store.rows.add(new_run(store, code="other"), {0: Row({**IDENTITY, **MEASURED, "rows_nan": 3})})
        store.rows.add(new_run(store, environment={**ENVIRONMENT, "threads": 1}), {0: Row({**IDENTITY, **MEASURED})})
        known = store.rows.known(["c1"], "code", ENVIRONMENT)
    assert known["c1"].cells == {**IDENTITY, **MEASURED, "rows_nan": 2, "latency_first": 1.0}


@pytest.mark.parametrize(("status", "known"), [("refused", True), ("absent", False), ("raised", False)])
def test_what_was_absent_or_failed_is_tried_again(tmp_path: Path, status: str, known: bool) -> None:
    """A library may have been installed since, and a failure may have been the machine's."""
    with Store(tmp_path / "s.sqlite") as store:
        store.rows.add(new_run(store), {0: Row({**IDENTITY, "status": status, "note": "why"})})
        assert ("c1" in store.rows.known(["c1"], "code", ENVIRONMENT)) == known


def test_a_row_is_on_disk_as_soon_as_it_is_added(tmp_path: Path) -> None:
    with Store(tmp_path / "s.sqlite") as writer, Store(tmp_path / "s.sqlite") as reader:
        run = new_run(writer)
        writer.rows.add(run, {0: Row({**IDENTITY, **MEASURED})})
        assert len(reader.rows.frame(run)) == 1


def test_a_run_remembers_where_it_came_from(tmp_path: Path) -> None:
    with Store(tmp_path / "s.sqlite") as store:
        first, second = new_run(store), new_run(store)
        store.runs.finish(first, {"kernels": 1.5})
        assert store.runs.find().id == second
        assert store.runs.find(second).finished is None
        record = store.runs.find(first)
        assert (record.seconds, record.environment, record.config) == ({"kernels": 1.5}, ENVIRONMENT, "text")
        with pytest.raises(UsageError, match=r"no run 9 .* 1 \(name\), 2 \(name\)"):
            store.runs.find(9)


def test_columns_that_came_later_are_added_to_an_old_store(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    with Store(path) as store:
        run = new_run(store)
        store.rows.add(run, {0: Row({**IDENTITY, **MEASURED})})
    with sqlite3.connect(path) as db:
        db.execute("ALTER TABLE rows DROP COLUMN peak_memory")
    with Store(path) as store:
        assert store.rows.frame(run)["peak_memory"][0] is pd.NA


def test_what_is_no_store_is_refused_and_left_alone(tmp_path: Path) -> None:
    foreign = tmp_path / "foreign.sqlite"
    with sqlite3.connect(foreign) as db:
        db.execute("CREATE TABLE mine (x)")
    db.close()
    newer = tmp_path / "newer.sqlite"
    Store(newer).close()
    with sqlite3.connect(newer) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    text = tmp_path / "text.sqlite"
    text.write_text("not a database, but long enough to look at" * 100)
    for path, words in ((foreign, "another program"), (newer, "newer"), (text, "not a database"), (tmp_path, "open")):
        before = path.read_bytes() if path.is_file() else b""
        with pytest.raises(UsageError, match=words):
            Store(path)
        assert before == (path.read_bytes() if path.is_file() else b"")


def test_a_missing_store_is_not_made_by_reading(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="precision run"):
        Store(tmp_path / "none.sqlite", create=False)
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(UsageError, match="--store"):
        Store(tmp_path / "s.sqlite")


def test_a_full_disk_is_one_sentence_and_keeps_what_was_there(tmp_path: Path) -> None:
    with Store(tmp_path / "s.sqlite") as store:
        run = new_run(store)
        store.rows.add(run, {0: Row({**IDENTITY, **MEASURED})})
        pages = store._database._connection.execute("PRAGMA page_count").fetchone()[0]
        store._database._connection.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(UsageError, match="full"):
            store.rows.add(run, {0: Row({**IDENTITY, **MEASURED, "case": "c2", "note": "x" * 100_000})})
    with Store(tmp_path / "s.sqlite") as store:
        assert store.rows.frame(run)["case"].tolist() == ["c1"]

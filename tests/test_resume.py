"""A run that was stopped goes on: nothing that was finished is lost, doubled or measured again."""

import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from precision.errors import UsageError
from precision.records.row import Row
from precision.records.store import Store
from precision.records.writing import RunWriter
from precision.sweep.run import execute
from scripts.kill_runs import differences, kill, read_rows

ENVIRONMENT = {"torch": "2.13.0", "threads": 2}


def row(case, **cells):
    return Row({"case": case, "sweep": "s", "method": "eager", "status": "ok", "rows": 4, **cells})


def writer(store, *, text="text", code="code", environment=ENVIRONMENT, fresh=False):
    return RunWriter(store, "name", "title", text, code, environment, fresh=fresh)


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "s.sqlite") as store:
        yield store


def test_a_run_that_was_stopped_goes_on_with_the_rows_that_it_has(store):
    with writer(store) as stopped:
        stopped.add({0: row("c1"), 1: row("c2", revision="abc")})
    with writer(store) as again:
        assert again.number == stopped.number
        assert again.kept == {("s", "c1"): "", ("s", "c2"): "abc"}
        again.finish({})
    with writer(store) as new:
        assert new.number != stopped.number
        assert new.kept == {}


@pytest.mark.parametrize(
    "other", [{"text": "other"}, {"code": "other"}, {"environment": {**ENVIRONMENT, "threads": 1}}, {"fresh": True}]
)
def test_another_run_does_not_go_on_with_it(store, other):
    with writer(store) as stopped:
        pass
    with writer(store, **other) as new:
        assert new.number != stopped.number


def test_a_run_that_is_being_written_is_left_alone(store, tmp_path):
    with writer(store) as first, Store(store.path) as beside, writer(beside) as second:
        assert second.number != first.number
        second.finish({})
    assert [path.name for path in tmp_path.glob("*.lock")] == [f"s.sqlite-run{first.number}.lock"]
    with writer(store) as again:
        assert again.number == first.number
        again.finish({})
    assert not list(tmp_path.glob("*.lock"))


def test_rows_that_belong_together_are_kept_together_or_not_at_all(store):
    with writer(store) as run:
        with pytest.raises(UsageError):
            run.add({0: row("c1"), 1: row("c2", note=object())})
        assert store.rows.kept(run.number) == {}


def test_rows_are_read_in_the_order_of_the_plan(store):
    with writer(store) as run:
        for place in (2, 0, 1):
            run.add({place: row(f"c{place}")})
    assert store.rows.frame(run.number)["case"].tolist() == ["c0", "c1", "c2"]


def test_many_processes_may_make_the_same_store(tmp_path):
    script = "import sys; from pathlib import Path; from precision.records.store import Store; Store(Path(sys.argv[1]))"
    for attempt in range(3):
        path = str(tmp_path / f"{attempt}.sqlite")
        processes = [
            subprocess.Popen([sys.executable, "-c", script, path], stderr=subprocess.PIPE, text=True) for _ in range(4)
        ]
        assert [process.communicate()[1] for process in processes] == [""] * 4


@pytest.mark.parametrize("damage", ["UPDATE runs SET environment = '{'", "DROP TABLE runs", "DROP TABLE rows"])
def test_a_damaged_store_is_one_sentence(tmp_path, damage):
    path = tmp_path / "s.sqlite"
    with Store(path) as store:
        store.runs.begin("name", "title", "text", "code", ENVIRONMENT)
    with sqlite3.connect(path) as db:
        db.execute(damage)
    db.close()
    with pytest.raises(UsageError, match="--store"), Store(path) as store:
        store.rows.frame(store.runs.find().id)


class Stopped(Exception):
    pass


@pytest.mark.parametrize("rows", [1, 30, 41, 43])
def test_a_run_goes_on_after_any_number_of_rows(config, right, tmp_path, rows):
    def stop(progress):
        if progress.done == rows:
            raise Stopped

    path = tmp_path / "s.sqlite"
    with pytest.raises(Stopped):
        execute(str(config), device="cpu", store=path, listener=stop)
    before = read_rows(path)
    # Both rows of a task whose latencies are sampled in turns are kept by one transaction.
    assert len(before) == rows + (rows == 41 or rows == 43)
    heard = []
    assert execute(str(config), device="cpu", store=path, listener=heard.append) == 1
    assert [progress.done for progress in heard] == list(range(len(before) + 1, len(right) + 1))
    assert differences(before, read_rows(path), right) == []


def test_two_runs_at_once_on_one_store_are_two_runs(config, right, tmp_path):
    path = tmp_path / "s.sqlite"
    together = threading.Barrier(2)
    first = []

    def listen(progress):
        if not first or first[0] != threading.get_ident():
            first.append(threading.get_ident())
        if progress.done == 1:
            together.wait(30)

    with ThreadPoolExecutor(2) as pool:
        runs = list(pool.map(lambda _: execute(str(config), device="cpu", store=path, listener=listen), range(2)))
    assert sorted(runs) == [1, 2]
    with Store(path) as store:
        numbers = [name for name in right.columns if "latency" not in name]
        for run in runs:
            assert store.rows.frame(run)[numbers].equals(right[numbers])


@pytest.mark.parametrize("rows", [1, 20])
def test_a_run_that_was_killed_goes_on(config, right, tmp_path, rows):
    path = tmp_path / "s.sqlite"
    kill(config, path, rows)
    before = read_rows(path)
    assert rows <= len(before) < len(right)
    assert execute(str(config), device="cpu", store=path) == 1
    assert differences(before, read_rows(path), right) == []


def test_ctrl_c_ends_at_once_with_a_sentence_that_says_how_to_go_on(config, tmp_path):
    path = tmp_path / "s.sqlite"
    command = [sys.executable, "-m", "precision", "run", str(config), "--device", "cpu", "--store", str(path)]
    run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    while not len(read_rows(path)):
        assert run.poll() is None
        time.sleep(0.01)
    os.killpg(run.pid, signal.SIGINT)  # as a terminal does: to the workers, too
    begin = time.perf_counter()
    out, err = run.communicate(timeout=30)
    assert time.perf_counter() - begin < 2
    assert (run.returncode, out) == (130, "")
    assert err == "precision: stopped; what was measured is kept, and the same command goes on from there\n"

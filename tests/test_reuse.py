"""What a run takes over from earlier runs: right rows, in the right task, a part of the plan at a time."""

import pytest

from precision.errors import UsageError
from precision.problem import Case, Problem, Shape
from precision.records.row import Row
from precision.records.store import Store
from precision.sweep import reuse as reusing
from precision.sweep.reuse import reuse, wanted
from precision.sweep.run import execute
from precision.sweep.task import Plan, Task

METHODS = ("eager", "kernel")
REVISIONS = {"eager": "", "kernel": "abc"}
ENVIRONMENT = {"torch": "2.13.0", "threads": 2}


def task(length, *, sweep="s", methods=METHODS, backward=False, latency=False):
    return Task(sweep, Problem(Shape(1, 1, 1, length, 4, 4, 4), "fp32"), methods, backward, latency, "where")


def row(task, method="eager", **cells):
    case = Case(task.problem, method).key
    return Row({"case": case, "sweep": "other", "method": method, "status": "ok", "rows": 4, **cells})


def take_over(*tasks, rows=(), kept=()):
    """What is taken over and what is left, as (task, method)."""
    plan = Plan(tasks, "code", ENVIRONMENT, REVISIONS)
    table = {each.cells["case"]: each for each in rows}
    works = wanted(plan, dict(kept))
    parts = list(reuse(works, lambda cases: {case: table[case] for case in cases if case in table}, REVISIONS))
    taken = [(batch.index, each.cells["method"]) for part in parts for batch in part.batches for each in batch.rows]
    left = [(work.index, method) for part in parts for work in part.left for method in work.task.methods]
    return parts, taken, left


def test_a_row_of_an_earlier_run_becomes_one_of_the_task():
    parts, taken, left = take_over(task(1), task(2), rows=[row(task(2), "kernel", revision="abc")])
    assert taken == [(1, "kernel")]
    assert left == [(0, "eager"), (0, "kernel"), (1, "eager")]
    (found,) = parts[0].batches[0].rows
    assert (found.cells["sweep"], found.cells["source"], found.cells["rows"]) == ("s", "where", 4)


@pytest.mark.parametrize("kept", ["abc", "old"])
def test_a_row_that_the_run_has_is_wanted_again_only_when_the_kernel_is_another(kept):
    case = Case(task(1).problem, "kernel").key
    _, _, left = take_over(task(1), kept={("s", case): kept}.items())
    assert left == ([(0, "eager")] if kept == "abc" else [(0, "eager"), (0, "kernel")])


def test_a_row_that_says_too_little_is_measured_again():
    twice = task(1, methods=("eager",), backward=True)
    assert take_over(twice, rows=[row(twice)])[1:] == ([], [(0, "eager")])
    assert take_over(twice, rows=[row(twice, backward="ok")])[1:] == ([(0, "eager")], [])
    kernel = task(1, methods=("kernel",))
    assert take_over(kernel, rows=[row(kernel, "kernel", revision="old")])[1:] == ([], [(0, "kernel")])


def test_a_row_whose_latency_is_to_be_sampled_goes_with_its_work():
    timed = task(1, latency=True)
    parts, taken, left = take_over(timed, rows=[row(timed)], kept={("s", Case(timed.problem, "eager").key): ""}.items())
    assert (taken, left) == ([], [(0, "eager"), (0, "kernel")])
    ((key, found),) = parts[0].left[0].known.items()
    assert key == found.cells["case"] == Case(timed.problem, "eager").key


def test_a_large_plan_is_looked_up_in_parts_and_nothing_is_lost(monkeypatch):
    monkeypatch.setattr(reusing, "_TOGETHER", 3)
    tasks = [task(length) for length in range(1, 9)]
    rows = [row(each) for each in tasks[::2]]
    parts, taken, left = take_over(*tasks, rows=rows)
    assert len(parts) == 3
    assert taken == [(index, "eager") for index in (0, 2, 4, 6)]
    assert sorted(taken + left) == [(index, method) for index in range(8) for method in METHODS]


def test_only_the_cases_that_are_asked_for_are_read(tmp_path):
    with Store(tmp_path / "s.sqlite") as store:
        run = store.runs.begin("name", "title", "text", "code", ENVIRONMENT)
        # More keys than SQLite takes parameters.
        store.rows.add(run, {n: Row({"case": f"c{n}", "sweep": "s", "status": "ok", "rows": n}) for n in range(100)})
        found = store.rows.known([f"c{n}" for n in range(99, 40_000)], "code", ENVIRONMENT)
        assert {case: each.cells["rows"] for case, each in found.items()} == {"c99": 99}
        assert store.rows.known([], "code", ENVIRONMENT) == {}


def test_a_row_that_contradicts_itself_is_one_sentence(tmp_path):
    with Store(tmp_path / "s.sqlite") as store:
        run = store.runs.begin("name", "title", "text", "code", ENVIRONMENT)
        store.rows.add(run, {0: Row({"case": "c", "sweep": "s", "status": "ok", "rows": 4})})
        with store._database.use() as db:
            db.execute("UPDATE rows SET rows = NULL")
        with pytest.raises(UsageError, match="--store"):
            store.rows.known(["c"], "code", ENVIRONMENT)


def test_the_same_grid_again_is_taken_from_the_store(tmp_path):
    config = tmp_path / "twice.toml"
    config.write_text(
        'title = "Twice"\n[[sweep]]\nname = "s"\nmethods = ["eager", "sdpa-math"]\nq_len = [4, 8]\nd_k = 4\n'
    )
    path = tmp_path / "s.sqlite"
    first = execute(str(config), device="cpu", store=path)
    heard = []
    second = execute(str(config), device="cpu", store=path, listener=heard.append)
    assert [progress.done for progress in heard] == list(range(1, 13))
    with Store(path) as store:
        # The time of a first call is measured only once.
        assert store.rows.frame(second).equals(store.rows.frame(first))
        assert "kernels" not in store.runs.find(second).seconds

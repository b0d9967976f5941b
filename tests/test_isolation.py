"""A kernel that misbehaves is a row with the right status and reason; all others are as if it were not there."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from precision.backends.backend import backends
from precision.backends.own import revision_of
from precision.errors import UsageError
from precision.problem import Problem, Shape
from precision.records.store import Store
from precision.sweep.isolation import IsolatedBench
from precision.sweep.measure import Bench
from precision.sweep.run import execute
from precision.sweep.stopwatch import Stopwatch
from precision.sweep.task import Task
from precision.sweep.worker import Settings

PROBLEM = Problem(Shape(1, 2, 2, 16, 16, 8, 8), "fp32")
FILE = Path(__file__).parent / "kernels" / "misbehaving.py"
TIMEOUT = 1.5
MISBEHAVING = {
    "segfaults": ("crashed", "its process was killed by SIGSEGV"),
    "aborts": ("crashed", "its process was killed by SIGABRT: assertion failed: tile < 64"),
    "exits": ("crashed", "its process ended with exit status 3"),
    "ends_the_script": ("raised", "SystemExit: done"),
    "exhausts_memory": ("raised", "can't allocate memory"),
    "hangs": ("timeout", "it did not end within 1.5 s"),
    "hangs_in_c": ("timeout", "it did not end within 1.5 s"),
    "raises": ("raised", "ZeroDivisionError: division by zero"),
    "prints": ("ok", None),
    "returns_wrong_shape": ("raised", "ValueError: the method returned shape (1, 2, 8, 16), not (1, 2, 16, 8)"),
    "returns_wrong_dtype": ("raised", "TypeError: the method returned dtype torch.float64, not torch.float32"),
    "returns_wrong_device": ("raised", "TypeError: the method returned device meta, not cpu"),
    "returns_nothing": ("raised", "TypeError: the method returned NoneType, not a tensor"),
    "returns_a_view_of_its_input": ("ok", None),
    "writes_to_its_inputs": ("raised", "Misconduct: the method wrote to its inputs"),
    "changes_default_dtype": ("raised", "Misconduct: the method changed torch's default dtype"),
    "changes_gradient_mode": ("raised", "Misconduct: the method changed torch's gradient mode"),
    "changes_seed": ("raised", "Misconduct: the method changed torch's random state"),
    "changes_threads": ("raised", "Misconduct: the method changed torch's number of threads"),
    "changes_matmul_precision": ("raised", "Misconduct: the method changed torch's float32 matmul precision"),
    "changes_denormals": ("raised", "Misconduct: the method changed torch's flushing of denormals"),
}
GOOD = ("eager", "sdpa-math", "sdpa-flash")


def own(name, file=FILE):
    return f"kernel[function={file}:{name}]"


def numbers(row):
    """What is measured and does not depend on the clock."""
    return {name: cell for name, cell in row.cells.items() if "latency" not in name}


@pytest.fixture(scope="module")
def bench():
    bench = IsolatedBench(Settings("cpu", timeout=TIMEOUT, memory=2**29))
    yield bench
    bench.close()


@pytest.fixture(scope="module")
def rows(bench):
    """By method, one task in which a good method follows every bad one."""
    methods = []
    for number, name in enumerate(MISBEHAVING):
        methods += [own(name), f"eager[max_subtraction={'true' if number % 2 else 'false'}]"]
    found = list(bench.measure(Task("s", PROBLEM, (*methods, *GOOD), False, False), {}))
    assert len(found) == len(methods) + len(GOOD)
    return found


@pytest.mark.parametrize("name", MISBEHAVING)
def test_a_misbehaving_method_is_a_row_with_its_status_and_reason(rows, name):
    (row,) = (row for row in rows if row.cells["method"] == own(name))
    status, reason = MISBEHAVING[name]
    assert row.status == status
    assert row.cells.get("note") == reason or reason in row.cells["note"]
    assert row.cells["max_subtraction"] is True


def test_a_method_that_returns_its_input_is_measured_as_wrong(rows):
    (row,) = (row for row in rows if row.cells["method"] == own("returns_a_view_of_its_input"))
    assert row.cells["out_max_abs"] > 0.5  # values of N(0, 1) for their means


def test_all_other_methods_are_as_if_it_were_not_there(rows):
    alone = Bench(torch.device("cpu"), Stopwatch())
    others = [row for row in rows if row.cells["backend"] != "kernel"]
    assert len(others) == len(MISBEHAVING) + len(GOOD)
    right = {
        method: numbers(alone.measure_case(PROBLEM, method, False))
        for method in (*GOOD, "eager[max_subtraction=false]")
    }
    for row in others:
        method = str(row.cells["method"]).replace("[max_subtraction=true]", "")
        cells = {**numbers(row), "method": method, "case": right[method]["case"]}
        assert cells == {**right[method], "sweep": "s", "source": ""}, method


def test_what_a_method_prints_is_not_heard(bench, capfd):
    assert bench.measure_case(PROBLEM, own("prints"), False).status == "ok"
    assert capfd.readouterr() == ("", "")


def test_a_worker_that_dies_later_takes_nothing_from_the_next_case(bench):
    cells = []
    for method in (own("leaves_a_dying_process"), *["eager"] * 40):
        cells.append(bench.measure_case(PROBLEM, method, False).status)
    assert cells.count("ok") >= len(cells) - 1  # the one in which it died
    assert cells[-1] == "ok"


def test_a_crash_in_the_backward_pass_leaves_the_forward_row(bench):
    row = bench.measure_case(PROBLEM, own("crashes_in_backward"), True)
    assert row.status == "ok"
    assert row.cells["backward"] == "crashed: its process was killed by SIGSEGV"
    assert row.cells["out_max_abs"] < 1e-5


def test_a_crash_while_latency_is_sampled_takes_nothing_from_the_others(bench):
    methods = ("eager", own("crashes_when_sampled"), "sdpa-math", own("raises"))
    eager, hole, math, raised = bench.measure(Task("s", PROBLEM, methods, False, True), {})
    assert (hole.status, raised.status) == ("crashed", "raised")
    assert hole.cells["note"] == "its process was killed by SIGSEGV, while its latency was sampled"
    assert "out_max_abs" not in hole.cells
    assert all(len(json.loads(row.cells["latency_samples"])) >= 7 for row in (eager, math))


def test_a_script_without_a_guard_runs_once(tmp_path):
    """multiprocessing alone would run the caller's script again in every process."""
    (tmp_path / "one.toml").write_text(
        'title = "t"\n[[sweep]]\nname = "a"\nmethods = ["eager"]\ndtype = "fp64"\nq_len = 5\nd_k = 3'
    )
    (tmp_path / "script.py").write_text(
        "import sys, precision\n"
        "frame = precision.run('one.toml', device='cpu')\n"
        "print(frame['status'].tolist(), 'torch' in sys.modules, __file__, __spec__)\n"
    )
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"['ok'] False {tmp_path / 'script.py'} None\n"


KERNEL = """
def attention(q, k, v, scale=None, causal=False):
    import beside
    return beside.attend(q, k, v, scale)

def greedy(q, k, v, tile):
    pass
"""
BESIDE = """
from torch.nn.functional import scaled_dot_product_attention

def attend(q, k, v, scale):
    return scaled_dot_product_attention(q, k, v, scale=scale)
"""
CONFIG = """
title = "own"
[[sweep]]
name = "own"
methods = ["eager", "kernel[function=mine.py:attention]"]
mask = ["none", "causal"]
dtype = "fp32"
q_len = 8
d_k = 4
"""


def test_a_kernel_of_the_users_own_is_a_method(tmp_path, monkeypatch):
    """It is named by its file, may import what lies beside it, refuses what it does not take, and is never stale."""
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(KERNEL)
    Path("beside.py").write_text(BESIDE)
    Path("own.toml").write_text(CONFIG)
    store = tmp_path / "s.sqlite"
    runs = [execute("own.toml", device="cpu", store=store)]
    Path("mine.py").write_text(KERNEL.replace("return beside.attend(q, k, v, scale)", "return v"))
    runs.append(execute("own.toml", device="cpu", store=store))
    with Store(store) as kept:
        before, after = (kept.rows.frame(run).set_index(["method", "mask"]) for run in runs)
        assert "references" in kept.runs.find(runs[1]).seconds
    mine = "kernel[function=mine.py:attention]"
    assert before.loc[(mine, "none"), "out_max_abs"] < 1e-5
    assert after.loc[(mine, "none"), "out_max_abs"] > 0.1
    assert before.loc[(mine, "causal"), ["status", "note"]].tolist() == ["refused", "it takes no is_causal"]
    assert before.loc[("eager", "none")].equals(after.loc[("eager", "none")])


@pytest.mark.parametrize(
    ("function", "words"),
    [
        ("nowhere.py:attention", "there is no file 'nowhere.py'"),
        (f"{FILE}:segfautls", "did you mean 'segfaults'"),
        ("attention", "not of the form"),
        ("tests.kernels.misbehaving:_calls", "no function"),
    ],
)
def test_a_kernel_that_cannot_be_loaded_is_one_sentence(function, words):
    with pytest.raises(UsageError, match=words):
        revision_of(backends.build(f"kernel[function={function}]"))


def test_a_kernel_of_torchs_own_has_a_revision_and_a_backend_that_ships_has_none():
    assert len(revision_of(backends.build("kernel"))) == 16
    assert revision_of(backends.build("eager")) == ""

"""The benchmarks themselves: what they name exists, what they hand to asv is finite, and both runners take them."""

from __future__ import annotations

import itertools
import json
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from asv_runner.discovery import disc_benchmarks

from benchmarks import cases, conftest, error, incidence
from precision.backends.backend import Absent, Attention, Refused, backends
from precision.history.asv_results import read_asv
from precision.history.figures import make_history
from precision.history.pytest_results import read_pytest_benchmark
from precision.operands import Operands

ROOT = Path(__file__).parent.parent


@dataclass(frozen=True)
class Blank:
    """Attention that gives only NaN, gradients included."""

    max_subtraction = True

    @contextmanager
    def prepare(self, x: Operands) -> Iterator[Attention]:
        yield lambda: (x.q @ x.k.mT * math.nan) @ x.v


@dataclass(frozen=True)
class Unwilling:
    """Attention that is not to be had."""

    max_subtraction = True
    absent: bool = False

    @contextmanager
    def prepare(self, x: Operands) -> Iterator[Attention]:
        raise Absent("not here") if self.absent else Refused("not this one")
        yield


@pytest.fixture(autouse=True)
def _backends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(backends._classes, "blank", Blank)
    monkeypatch.setitem(backends._classes, "unwilling", Unwilling)


def run_tracks(benchmark: Any, *parameters: str) -> dict[str, float]:
    """Every track_ figure of a benchmark class for one combination, as asv would take them."""
    benchmark.setup(*parameters)
    return {name: getattr(benchmark, name)(*parameters) for name in dir(benchmark) if name.startswith("track_")}


def test_what_the_benchmarks_name_is_there() -> None:
    assert [backends.canonical(method) for method in cases.METHODS] == cases.METHODS
    for name, dtype, scale in itertools.product(cases.PROBLEMS, cases.DTYPES, cases.SCALES):
        x = cases.make_operands(name, dtype, scale)
        assert x.q.numel() > 0
        assert x.scale_value == (1.0 if scale == "none" else pytest.approx(x.q.shape[-1] ** -0.5))


def test_real_tensors_are_among_the_inputs() -> None:
    assert cases.make_operands("minilm-0", "fp32").q.shape == (1, 12, 68, 32)  # the model has 12 heads of width 32
    assert "captured" in cases.make_problem("minilm-5", "fp32").inputs


def test_asv_finds_the_benchmarks_and_pins_their_versions() -> None:
    found = {each.name: each for each in disc_benchmarks(str(ROOT / "benchmarks"))}
    kinds = {name.rsplit(".", 1)[-1].split("_")[0] for name in found}
    assert kinds == {"time", "peakmem", "track"}
    assert {name.split(".")[0] for name in found} == {"latency", "memory", "error", "incidence"}
    assert {each.version for each in found.values()} == {"1"}


@pytest.mark.parametrize("dtype", cases.DTYPES)
def test_nothing_but_nan_becomes_the_largest_number_and_a_full_count(dtype: str) -> None:
    problem = cases.make_problem("normal", dtype)
    shape = problem.shape
    largest = {"fp32": (2 - 2**-23) * 2.0**127, "fp16": 65504.0, "bf16": (2 - 2**-7) * 2.0**127}[dtype]
    assert run_tracks(error.Forward(), "blank", dtype, "none", "normal") == {
        "track_out_max_abs": largest,
        "track_out_rms": largest,
    }
    assert run_tracks(error.Backward(), "blank", dtype, "normal") == {"track_gradients_rel_l2": largest}
    rows = shape.q_heads * shape.q_len
    assert run_tracks(incidence.Forward(), "blank", dtype, "none", "normal") == {"track_nonfinite": rows}
    elements = 3 * shape.q_heads * shape.q_len * shape.d_k
    assert run_tracks(incidence.Backward(), "blank", dtype, "normal") == {"track_nonfinite": elements}


@pytest.mark.parametrize("method", cases.METHODS)
@pytest.mark.parametrize("scale", cases.SCALES)
def test_asv_is_handed_finite_plain_numbers(method: str, scale: str) -> None:
    figures = run_tracks(error.Forward(), method, "fp16", scale, "minilm-0")
    figures |= run_tracks(incidence.Forward(), method, "fp16", scale, "minilm-0")
    assert all(type(figure) in (int, float) and math.isfinite(figure) for figure in figures.values())


@pytest.mark.parametrize("method", ["unwilling", "unwilling[absent=true]"])
def test_what_cannot_run_is_skipped(method: str) -> None:
    with pytest.raises(NotImplementedError, match="not"):
        error.Forward().setup(method, "fp32", "none", "normal")


def test_the_reference_agrees_with_torch() -> None:
    for problem in cases.PROBLEMS:
        figure = error.Reference().track_reference_max_abs(problem)
        assert 0 <= figure < 1e-12


_BLANK_SUITE = """
from benchmarks import error, incidence
from tests.test_benchmarks import Blank
from precision.backends.backend import backends

backends.register("blank")(Blank)


class Forward(error.Forward):
    params = (["blank"], ["fp16"], ["none"], ["normal"])


class Backward(error.Backward):
    params = (["blank"], ["fp16"], ["normal"])


class Incidence(incidence.Forward):
    params = (["blank"], ["fp16"], ["none"], ["normal"])
"""


def run_in(folder: Path, *command: str) -> str:
    """Output of a command that ends well within a minute."""
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "ASV_PYTHONPATH": str(ROOT), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_asv_runs_and_publishes_a_backend_that_gives_only_nan(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "benchmarks", tmp_path / "benchmarks", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "benchmarks" / "blank.py").write_text(_BLANK_SUITE)
    settings = {"version": 1, "project": "p", "repo": ".", "branches": ["HEAD"], "launch_method": "forkserver"}
    settings |= {f"{name}_dir": f".asv/{name}" for name in ("env", "results", "html")}
    (tmp_path / "asv.conf.json").write_text(json.dumps({**settings, "environment_type": "existing"}))
    git = ("git", "-c", "user.name=test", "-c", "user.email=test@localhost")
    run_in(tmp_path, "git", "init", "--quiet")
    run_in(tmp_path, "git", "add", ".")
    run_in(tmp_path, *git, "commit", "--quiet", "--message", "all")
    commit = run_in(tmp_path, "git", "rev-parse", "HEAD").strip()
    asv = (sys.executable, "-m", "asv")
    run_in(tmp_path, *asv, "machine", "--yes", "--machine", "m")
    here = ("--python=same", "--machine", "m", "--set-commit-hash", commit)
    run_in(tmp_path, *asv, "run", *here, "--quick", "--bench", "^blank")
    run_in(tmp_path, *asv, "publish")
    values = {each.benchmark.split("(")[0]: each.value for each in read_asv(tmp_path / ".asv" / "results")}
    assert values == {
        "blank.Forward.track_out_max_abs": 65504.0,
        "blank.Forward.track_out_rms": 65504.0,
        "blank.Backward.track_gradients_rel_l2": 65504.0,
        "blank.Incidence.track_nonfinite": 2 * 257,
    }
    assert (tmp_path / ".asv" / "html" / "index.html").is_file()


@pytest.mark.parametrize("asked", [None, "benchmark_only", "benchmark_enable"])
def test_pytest_times_nothing_unless_asked_to(asked: str | None) -> None:
    option = SimpleNamespace(benchmark_disable=False)
    conftest.pytest_configure(SimpleNamespace(getoption=lambda name, default: name == asked, option=option))
    assert option.benchmark_disable is (asked is None)


def test_history_reads_what_pytest_benchmark_writes(tmp_path: Path) -> None:
    file = str(tmp_path / "one.json")
    chosen = ("benchmarks/test_forward.py", "-k", "eager-fp32-normal", "-p", "no:cacheprovider")
    run_in(ROOT, sys.executable, "-m", "pytest", *chosen, "--benchmark-only", "--benchmark-json", file)
    figures = make_history(read_pytest_benchmark(tmp_path)).set_index("kind")
    assert set(figures["torch"]) == {torch.__version__}
    assert figures.loc["nonfinite", "value"] == 0
    assert figures.loc["latency", "value"] > 0
    assert set(figures.loc["error", "benchmark"].str.split().str[-1]) == {"out_max_abs", "out_rms"}

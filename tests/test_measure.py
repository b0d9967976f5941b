"""From a task to rows: statuses, reuse, and the costs that are measured beside the numbers."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import precision
from precision.backends.backend import Absent, Attention, Refused, backends
from precision.latency.clock import time_first
from precision.latency.sample import sample_latency
from precision.operands import Operands
from precision.problem import Problem, Shape
from precision.records.row import Row, Status
from precision.records.store import Store
from precision.sweep.environment import code_version
from precision.sweep.grid import Task
from precision.sweep.measure import Bench
from precision.sweep.memory import measure_peak_memory
from precision.sweep.run import execute
from precision.sweep.stopwatch import Stopwatch
from precision.sweep.turns import Turn, sample_in_turns

CPU = torch.device("cpu")
PROBLEM = Problem(Shape(1, 2, 2, 9, 7, 8, 5), "fp16")


def measured(
    *methods: str, problem: Problem = PROBLEM, backward: bool = False, latency: bool = False, known: Any = None
) -> list[Row]:
    bench = Bench(CPU, Stopwatch())
    return list(bench.measure(Task("s", problem, methods, backward, latency), known or {}))


@pytest.fixture
def misbehaving(monkeypatch: pytest.MonkeyPatch) -> None:
    """A backend that ends in each way that is not ok."""

    @dataclass(frozen=True)
    class Misbehaving:
        how: str = "raise"
        max_subtraction = True

        @contextmanager
        def prepare(self, x: Operands) -> Iterator[Attention]:
            if self.how == "absent":
                raise Absent("it needs a machine of gold")
            if self.how == "refuse":
                raise Refused("d_v differs from d_k")
            yield partial(self.call, x)

        def call(self, x: Operands) -> Tensor:
            if self.how == "raise":
                raise ZeroDivisionError("division by zero")
            if self.how == "shape":
                return x.q
            return None  # type: ignore[return-value]

    backends.names()  # discover the others first
    monkeypatch.setitem(backends._classes, "misbehaving", Misbehaving)


@pytest.mark.parametrize(
    ("how", "status", "reason"),
    [
        ("absent", Status.ABSENT, "it needs a machine of gold"),
        ("refuse", Status.REFUSED, "d_v differs from d_k"),
        ("raise", Status.RAISED, "ZeroDivisionError: division by zero"),
        ("shape", Status.RAISED, "ValueError: the method returned shape (1, 2, 9, 8), not (1, 2, 9, 5)"),
        ("none", Status.RAISED, "TypeError: the method returned NoneType, not a tensor"),
    ],
)
@pytest.mark.usefixtures("misbehaving")
def test_a_hole_is_a_row_with_a_reason_and_the_run_goes_on(how: str, status: Status, reason: str) -> None:
    hole, eager = measured(f"misbehaving[how={how}]", "eager")
    assert (hole.status, hole.cells["note"]) == (status, reason)
    assert "rows" not in hole.cells
    assert eager.status is Status.OK


def test_a_refused_backend_gives_torchs_own_reason() -> None:
    (row,) = measured("sdpa-flash")
    assert row.status is Status.REFUSED
    assert "last dimension" in str(row.cells["note"])


def test_a_row_says_what_it_is() -> None:
    (row,) = measured("eager[max_subtraction=false]")
    cells = row.cells
    assert (cells["backend"], cells["max_subtraction"], cells["dtype"]) == ("eager", False, "fp16")
    assert (cells["q_len"], cells["kv_len"], cells["d_v"], cells["rows"], cells["pairs"]) == (9, 7, 5, 18, 2 * 9 * 7)
    assert cells["scale_value"] == pytest.approx(8**-0.5)
    assert cells["out_compared"] == cells["out_total_compared"] == 2 * 9 * 5


def test_both_references_differ_by_the_rounding_of_the_inputs() -> None:
    """sdpa-math upcasts fp16 and rounds once, half an ulp at most but for the error of fp32 far below it."""
    (row,) = measured("sdpa-math")
    assert float(row.cells["out_p99_ulp"]) <= 0.51 < float(row.cells["out_total_p99_ulp"])  # type: ignore[arg-type]


def test_inputs_that_rounding_leaves_alone_have_one_reference() -> None:
    bench = Bench(CPU, Stopwatch())
    truth = bench._truths.of(Problem(PROBLEM.shape, "fp64"))
    assert truth.arithmetic is truth.total
    truth = bench._truths.of(PROBLEM)
    assert truth.arithmetic is not truth.total


def test_dtypes_share_the_reference_of_the_unrounded_inputs() -> None:
    bench = Bench(CPU, Stopwatch())
    half, brain = (bench._truths.of(Problem(PROBLEM.shape, dtype)) for dtype in ("fp16", "bf16"))
    assert half.total is brain.total
    assert bench._truths.of(Problem(PROBLEM.shape, "fp16", seed=1)).total is not half.total


def test_a_known_row_is_taken_over_and_only_its_latency_is_new() -> None:
    (old,) = measured("eager", latency=True)
    doctored = Row({**old.cells, "out_max_abs": 123.0, "latency_samples": "[9.0]", "sweep": "elsewhere"})
    known = {str(old.cells["case"]): doctored}
    (kept,) = measured("eager", known=known)
    assert kept.cells == {**doctored.cells, "sweep": "s"}
    (timed,) = measured("eager", latency=True, known=known)
    assert timed.cells["out_max_abs"] == 123.0
    assert timed.cells["latency_samples"] != "[9.0]"


def test_the_backward_pass_has_cells_of_its_own() -> None:
    (row,) = measured("eager", problem=Problem(PROBLEM.shape, "fp64"), backward=True, latency=True)
    cells = row.cells
    assert cells["backward"] == "ok"
    for name, size in (("dq", 2 * 9 * 8), ("dk", 2 * 7 * 8), ("dv", 2 * 7 * 5)):
        assert float(cells[f"{name}_max_abs"]) < 1e-12  # type: ignore[arg-type]
        assert (cells[f"{name}_compared"], cells[f"{name}_nonfinite"]) == (size, 0)
    assert len(json.loads(str(cells["backward_latency_samples"]))) >= 7


def test_a_nan_in_a_gradient_is_counted_apart_from_the_output() -> None:
    """Scores of 300 make exp infinite in fp16: the output is NaN, and so is every gradient."""
    problem = Problem(PROBLEM.shape, "fp16", "large[std=8.0]", scale="none")
    (row,) = measured("eager[max_subtraction=false]", problem=problem, backward=True)
    assert row.cells["rows_nan"] != 0
    assert row.cells["dv_nonfinite"] != 0


def test_a_known_row_without_its_backward_pass_is_measured_anew() -> None:
    (old,) = measured("eager")
    (new,) = measured("eager", known={str(old.cells["case"]): old}, backward=True)
    assert new.cells["backward"] == "ok"
    assert old.cells.items() >= {key: new.cells[key] for key in ("case", "out_max_abs", "rows_nan")}.items()


def test_a_refused_backward_pass_leaves_the_forward_row(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass(frozen=True)
    class Forward:
        max_subtraction = True

        @contextmanager
        def prepare(self, x: Operands) -> Iterator[Attention]:
            plain = Operands(x.q.detach(), x.k.detach(), x.v.detach(), scale=x.scale)
            yield lambda: torch.softmax(plain.q @ plain.k.mT * plain.scale_value, -1) @ plain.v

    backends.names()
    monkeypatch.setitem(backends._classes, "forward", Forward)
    (row,) = measured("forward", backward=True)
    assert row.status is Status.OK
    assert str(row.cells["backward"]).startswith("refused: the output carries no gradient")
    assert "dq_max_abs" not in row.cells


class Counting:
    """Prepared calls of a method that takes a while, sets something up, or fails after some calls."""

    def __init__(self, fails_after: int = 10**9) -> None:
        self.opened = self.called = 0
        self._fails_after = fails_after

    @contextmanager
    def prepare(self) -> Iterator[Attention]:
        self.opened += 1
        yield self.call

    def call(self) -> Tensor:
        self.called += 1
        if self.called > self._fails_after:
            raise MemoryError("no more")
        return torch.zeros(1)


def test_methods_take_turns_and_one_with_a_set_up_does_not() -> None:
    quick, other, compiled = Counting(), Counting(), Counting()
    turns = {
        "quick": Turn(quick.prepare, 0.001),
        "other": Turn(other.prepare, 0.001),
        "compiled": Turn(compiled.prepare, 5.0),
    }
    found = sample_in_turns(turns, CPU)
    assert compiled.opened == 1
    assert quick.opened == other.opened > 7
    assert all(len(found[name]) >= 7 for name in turns)  # type: ignore[arg-type]


def test_a_method_that_fails_while_it_is_timed_takes_nothing_from_the_others() -> None:
    good, bad = Counting(), Counting(fails_after=50)
    found = sample_in_turns({"good": Turn(good.prepare, 0.001), "bad": Turn(bad.prepare, 0.001)}, CPU)
    assert isinstance(found["bad"], MemoryError)
    assert len(found["good"]) >= 7  # type: ignore[arg-type]


@pytest.mark.usefixtures("misbehaving")
def test_a_method_that_fails_while_it_is_timed_is_a_hole(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(turns: dict[str, Turn], device: torch.device) -> dict[str, Any]:
        return {"eager": MemoryError("no more"), "sdpa-math": [0.5] * 7}

    monkeypatch.setattr("precision.sweep.sampling.sample_in_turns", fail)
    hole, timed = measured("eager", "sdpa-math", latency=True)
    assert (hole.status, hole.cells["note"]) == (Status.RAISED, "MemoryError: no more")
    assert timed.cells["latency_samples"] == json.dumps([0.5] * 7)


def test_latency_is_that_of_the_call() -> None:
    pause = 0.004

    def call() -> Tensor:

        time.sleep(pause)
        return torch.zeros(1)

    _, first = time_first(call, CPU)
    samples = sample_latency(call, CPU)
    assert first >= pause
    assert len(samples) >= 7
    assert min(samples) >= pause  # time.sleep never returns early


@pytest.mark.parametrize("size", [1000, 250_000])
def test_peak_memory_is_what_the_call_holds_at_once(size: int) -> None:
    x = torch.ones(size)

    def call() -> Tensor:
        kept = x + 1  # 4 size bytes, held to the end
        for _ in range(3):
            kept = kept * 2  # and 4 size more while the product is made
        return kept

    assert measure_peak_memory(call, CPU) == pytest.approx(8 * size, abs=256)


def test_a_run_keeps_every_row_and_a_second_one_measures_nothing_but_latency(tmp_path: Path) -> None:
    config = tmp_path / "small.toml"
    config.write_text(
        """
        title = "small"
        [[sweep]]
        name = "plain"
        methods = ["eager", "sdpa-math"]
        dtype = ["fp16"]
        q_len = 8
        d_k = 4
        [[sweep]]
        name = "timed"
        methods = ["eager", "sdpa-math"]
        dtype = ["fp16"]
        q_len = 8
        d_k = 4
        latency = true
        """
    )
    path = tmp_path / "s.sqlite"
    heard = []
    first = execute(str(config), device="cpu", store=path, listener=heard.append)
    assert [(progress.done, progress.cases) for progress in heard] == [(i, 4) for i in range(1, 5)]
    second = execute(str(config), device="cpu", store=path)
    with Store(path) as store:
        frames = [store.frame(first), store.frame(second)]
        record = store.find_run(second)
    assert record.finished
    assert "references" not in record.seconds  # nothing but latency was left to do
    numbers = [column for column in frames[0] if "latency" not in column]
    assert frames[0][numbers].equals(frames[1][numbers])
    assert frames[1]["latency"].isna().tolist() == [True, True, False, False]
    assert json.loads(frames[1]["latency_samples"][2]) != json.loads(frames[0]["latency_samples"][2])
    third = execute(str(config), device="cpu", store=path, fresh=True)
    with Store(path) as store:
        assert "references" in store.find_run(third).seconds


def test_the_api_gives_the_rows_as_a_frame(tmp_path: Path) -> None:
    config = tmp_path / "one.toml"
    config.write_text('title = "t"\n[[sweep]]\nname = "a"\nmethods = ["eager"]\ndtype = ["fp64"]\nq_len = 5\nd_k = 3')
    frame = precision.run(str(config), device="cpu", store=tmp_path / "s.sqlite")
    assert frame["status"].tolist() == ["ok"]
    assert frame["out_max_abs"][0] < 1e-12


def test_inputs_larger_than_the_machine_are_refused_before_anything_is_made(tmp_path: Path) -> None:
    config = tmp_path / "huge.toml"
    config.write_text(
        'title = "t"\n[[sweep]]\nname = "big"\nmethods = ["eager"]\nq_len = 1_000_000_000\nd_k = 4096\nq_heads = 64'
    )
    with pytest.raises(precision.UsageError, match=r"'big'.*GiB"):
        execute(str(config), store=tmp_path / "s.sqlite")
    assert not (tmp_path / "s.sqlite").exists()


def test_the_code_version_follows_every_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of other code must not be taken for those of this one, wherever the code differs."""
    for name in ("__init__.py", "formats.py", "deep/inside.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("one = 1\n")
    monkeypatch.setattr(precision, "__file__", str(tmp_path / "__init__.py"))
    seen = [code_version()]
    for name in ("formats.py", "deep/inside.py"):
        (tmp_path / name).write_text("one = 2\n")
        seen.append(code_version())
    assert len(set(seen)) == 3
    assert code_version() == seen[-1]


def test_a_device_that_is_not_there_is_refused() -> None:
    for device in ("tpu", *(() if torch.cuda.is_available() else ("cuda",))):
        with pytest.raises(precision.UsageError, match=device):
            execute("quick", device=device)

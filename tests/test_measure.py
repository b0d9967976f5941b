"""From a task to rows: statuses, references, the backward pass, and rows of earlier runs."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
import torch
from measuring import CPU, PROBLEM, measured
from torch import Tensor

from precision.backends.backend import Absent, Attention, Refused, backends
from precision.operands import Operands
from precision.problem import Problem
from precision.records.row import Row, Status
from precision.sweep.measure import Bench
from precision.sweep.stopwatch import Stopwatch
from precision.sweep.turns import Turn


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


@pytest.mark.usefixtures("misbehaving")
def test_a_method_that_fails_while_it_is_timed_is_a_hole(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(turns: dict[str, Turn], device: torch.device) -> dict[str, Any]:
        return {"eager": MemoryError("no more"), "sdpa-math": [0.5] * 7}

    monkeypatch.setattr("precision.sweep.sampling.sample_in_turns", fail)
    hole, timed = measured("eager", "sdpa-math", latency=True)
    assert (hole.status, hole.cells["note"]) == (Status.RAISED, "MemoryError: no more")
    assert timed.cells["latency_samples"] == json.dumps([0.5] * 7)

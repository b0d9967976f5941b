"""Problem x method -> row. With sweep/gradients.py and sweep/turns.py the only caller of backends."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from functools import partial

import torch
from torch import Tensor

from precision.backends.backend import Absent, Backend, Refused, backends
from precision.backends.gradient import prepare_gradients
from precision.latency.clock import time_first
from precision.numerics.incidence import count_incidence
from precision.numerics.metrics import measure_errors
from precision.problem import Case
from precision.records.columns import BY_NAME
from precision.records.row import Cell, Row, Status
from precision.spec import Spec
from precision.sweep.error_cells import error_cells
from precision.sweep.gradients import measure_gradients
from precision.sweep.grid import Task
from precision.sweep.memory import profile_call
from precision.sweep.stopwatch import Stopwatch
from precision.sweep.truth import Truth, TruthMaker
from precision.sweep.turns import Turn, sample_in_turns
from precision.threads import one_thread


class Bench:
    """Measures tasks on one device, one after the other."""

    def __init__(self, device: torch.device, watch: Stopwatch) -> None:
        self._device = device
        self._watch = watch
        self._truths = TruthMaker(device, watch)

    def measure(self, task: Task, known: Mapping[str, Row]) -> Iterator[Row]:
        """The rows of a task, one a method. A row in `known` (by case) is taken over; only its latency is new.

        Rows come one by one, or all at the end when their latencies are sampled in turns.
        """
        truth = self._truths.of(task.problem)
        named = {"sweep": task.sweep, "source": task.source}
        rows = (Row({**self._measure_method(task, truth, method, known).cells, **named}) for method in task.methods)
        yield from self._sample_latency(task, truth, list(rows)) if task.latency else rows

    def _measure_method(self, task: Task, truth: Truth, method: str, known: Mapping[str, Row]) -> Row:
        case = Case(task.problem, method)
        row = known.get(case.key)
        if row is None or (row.status is Status.OK and task.backward and "backward" not in row.cells):
            row = self._measure_case(case, truth)
            if row.status is Status.OK and task.backward:
                gradients = measure_gradients(backends.build(method), truth, self._device, self._watch)
                row = Row({**row.cells, **gradients})
        return row

    def _measure_case(self, case: Case, truth: Truth) -> Row:
        backend = backends.build(case.method)
        cells = _identity(case, backend, truth, self._device)
        try:
            with backend.prepare(truth.inputs.rounded) as call, self._watch.timing("kernels"):
                out, first = time_first(call, self._device)
                _require_shape(out, truth)
                profiled = profile_call(call, self._device)
        except Exception as error:  # any kernel may raise anything, and the run goes on
            return _hole(cells, error)
        return Row(
            {
                **cells,
                "status": Status.OK,
                "ran": " ".join(profiled.operators),
                **self._judge(out, truth),
                "latency_first": first,
                "peak_memory": profiled.peak_memory,
                "threads": torch.get_num_threads(),
            }
        )

    def _judge(self, out: Tensor, truth: Truth) -> dict[str, Cell]:
        arithmetic, total = truth.arithmetic, truth.total
        with self._watch.timing("errors"), one_thread(self._device):
            kept = ~arithmetic.masked_rows
            cells: dict[str, Cell] = asdict(count_incidence(out, arithmetic))
            for prefix, right in (("out", arithmetic), ("out_total", total)):
                cells |= error_cells(prefix, measure_errors(out, right.out, truth.format, kept))
        return {**cells, **asdict(truth.hazards)}

    def _sample_latency(self, task: Task, truth: Truth, rows: list[Row]) -> list[Row]:
        """The same rows with samples of the forward pass, and of both passes where the task has a backward one."""
        x = truth.inputs.rounded
        passes = {"latency": lambda backend: backend.prepare(x)}
        if task.backward:
            passes["backward_latency"] = lambda backend: prepare_gradients(backend, x, truth.upstream)
        for name, prepare in passes.items():
            turns = {
                method: Turn(partial(prepare, backends.build(method)), _first_seconds(row, name))
                for method, row in zip(task.methods, rows, strict=True)
                if row.status is Status.OK and (name == "latency" or row.cells["backward"] == "ok")
            }
            with self._watch.timing("kernels"):
                found = sample_in_turns(turns, self._device)
            rows = [_with_samples(row, name, found.get(str(row.cells["method"]))) for row in rows]
        return rows


def _identity(case: Case, backend: Backend, truth: Truth, device: torch.device) -> dict[str, Cell]:
    problem = case.problem
    return {
        "case": case.key,
        "problem": problem.key,
        "method": case.method,
        "backend": Spec.parse(case.method).name,
        "max_subtraction": backend.max_subtraction,
        "inputs": problem.inputs,
        "dtype": problem.dtype,
        "mask": problem.mask,
        "scale": str(problem.scale),
        "scale_value": truth.inputs.exact.scale_value,
        "seed": problem.seed,
        "device": device.type,
        **asdict(problem.shape),
    }


def _first_seconds(row: Row, name: str) -> float:
    return float(row.cells[f"{name}_first"] or 0.0)


def _with_samples(row: Row, name: str, samples: list[float] | Exception | None) -> Row:
    if samples is None:
        return row
    if isinstance(samples, Exception):
        return _hole({key: row.cells[key] for key in row.cells if BY_NAME[key].group == "identity"}, samples)
    return Row({**row.cells, f"{name}_samples": json.dumps(samples)})


def _hole(identity: Mapping[str, Cell], error: Exception) -> Row:
    reason = str(error).strip() or "no reason was given"
    if isinstance(error, Absent):
        status = Status.ABSENT
    elif isinstance(error, Refused | NotImplementedError):
        status = Status.REFUSED
    else:
        status, reason = Status.RAISED, f"{type(error).__name__}: {reason}"
    return Row({**identity, "status": status, "note": reason})


def _require_shape(out: object, truth: Truth) -> None:
    x = truth.inputs.rounded
    wanted = (*x.q.shape[:3], x.v.shape[-1])
    if not isinstance(out, Tensor):
        raise TypeError(f"the method returned {type(out).__name__}, not a tensor")
    if tuple(out.shape) != wanted:
        raise ValueError(f"the method returned shape {tuple(out.shape)}, not {wanted}")

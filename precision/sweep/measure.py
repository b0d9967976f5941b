"""Problem x method -> row. The only caller of backends."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict

import torch
from torch import Tensor

from precision.backends.backend import Absent, Backend, Refused, backends
from precision.latency.clock import time_first
from precision.latency.sample import sample_latency
from precision.numerics.incidence import count_incidence, fully_masked_rows
from precision.numerics.metrics import measure_errors
from precision.problem import Case
from precision.records.row import Cell, Row, Status
from precision.spec import Spec
from precision.sweep.error_cells import error_cells
from precision.sweep.gradients import measure_gradients
from precision.sweep.grid import Task
from precision.sweep.memory import measure_peak_memory
from precision.sweep.stopwatch import Stopwatch
from precision.sweep.truth import Truth, TruthMaker


class Bench:
    """Measures tasks on one device, one after the other."""

    def __init__(self, device: torch.device, watch: Stopwatch) -> None:
        self._device = device
        self._watch = watch
        self._truths = TruthMaker(device, watch)

    def measure(self, task: Task, known: Mapping[str, Row]) -> Iterator[Row]:
        """The rows of a task, one a method. A row in `known` (by case) is taken over; only its latency is new."""
        truth = self._truths.of(task.problem)
        for method in task.methods:
            case = Case(task.problem, method)
            row = known.get(case.key)
            if row is not None and task.backward and row.status is Status.OK and "backward" not in row.cells:
                row = None
            if row is None or (task.latency and row.status is Status.OK):
                row = self._measure_case(task, case, truth, row)
            yield Row({**row.cells, "sweep": task.sweep, "source": task.source})

    def _measure_case(self, task: Task, case: Case, truth: Truth, known: Row | None) -> Row:
        backend = backends.build(case.method)
        cells = _identity(case, backend, truth, self._device)
        try:
            with backend.prepare(truth.inputs.rounded) as call, self._watch.timing("kernels"):
                out, first = time_first(call, self._device)
                _require_shape(out, truth)
                cost = _latency_cells(first, sample_latency(call, self._device) if task.latency else [])
                if known is None:
                    cost["peak_memory"] = measure_peak_memory(call, self._device)
        except Absent as error:
            return _hole(cells, Status.ABSENT, str(error))
        except Refused as error:
            return _hole(cells, Status.REFUSED, str(error))
        except Exception as error:  # any kernel may raise anything, and the run goes on
            return _hole(cells, Status.RAISED, f"{type(error).__name__}: {error}")
        judged = known.cells if known is not None else {**cells, "status": Status.OK, **self._judge(out, truth)}
        if task.backward:
            cost |= measure_gradients(backend, truth, self._device, self._watch, latency=task.latency)
        return Row({**judged, **cost})

    def _judge(self, out: Tensor, truth: Truth) -> dict[str, Cell]:
        arithmetic, total = truth.arithmetic, truth.total
        with self._watch.timing("errors"):
            kept = ~fully_masked_rows(arithmetic, truth.inputs.rounded)
            cells: dict[str, Cell] = asdict(count_incidence(out, arithmetic, truth.inputs.rounded))
            for prefix, right in (("out", arithmetic), ("out_total", total)):
                cells |= error_cells(prefix, measure_errors(out, right.out, truth.format, kept))
        return {**cells, **asdict(truth.hazards)}


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


def _latency_cells(first: float, samples: list[float]) -> dict[str, Cell]:
    cells: dict[str, Cell] = {"latency_first": first, "threads": torch.get_num_threads()}
    if samples:
        cells["latency_samples"] = json.dumps(samples)
    return cells


def _hole(identity: Mapping[str, Cell], status: Status, reason: str) -> Row:
    return Row({**identity, "status": status, "note": reason.strip() or "no reason was given"})


def _require_shape(out: object, truth: Truth) -> None:
    x = truth.inputs.rounded
    wanted = (*x.q.shape[:3], x.v.shape[-1])
    if not isinstance(out, Tensor):
        raise TypeError(f"the method returned {type(out).__name__}, not a tensor")
    if tuple(out.shape) != wanted:
        raise ValueError(f"the method returned shape {tuple(out.shape)}, not {wanted}")

"""Problem x method -> row. With sweep/gradients.py and sweep/sampling.py the only caller of backends."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from precision.backends.backend import backends
from precision.backends.derivatives import prepare_asked
from precision.backends.own import revision_of
from precision.inputs.find import asked_of
from precision.latency.clock import time_first
from precision.numerics.incidence import count_incidence
from precision.numerics.metrics import measure_errors
from precision.problem import Problem
from precision.records.row import Cell, Row, Status
from precision.sweep.conduct import watched
from precision.sweep.error_cells import error_cells
from precision.sweep.first_failure import first_failure
from precision.sweep.gradients import Backward, call_backward, judge_backward
from precision.sweep.identity import identity_of
from precision.sweep.measurer import Measurer
from precision.sweep.memory import ProfiledCall, profile_call
from precision.sweep.outcome import hole_of
from precision.sweep.own_truth import truth_for
from precision.sweep.sampling import sample_latency_of
from precision.sweep.stopwatch import Stopwatch
from precision.sweep.task import Task
from precision.sweep.truth import Truth, TruthMaker
from precision.threads import one_thread


@dataclass(frozen=True)
class Call:
    """What a method gave; `backward` is None when it was not asked for, and a reason when there is none."""

    cells: dict[str, Cell]
    truth: Truth
    out: Tensor
    first: float
    profiled: ProfiledCall
    backward: Backward | str | None


class Bench(Measurer):
    """Measures tasks in this process, on one device. A kernel may allocate `memory` bytes, or most of what is free.

    A case is measured in three steps, so that those in which a kernel runs can be told from our own.
    """

    def __init__(self, device: torch.device, watch: Stopwatch, memory: int | None = None) -> None:
        super().__init__(watch)
        self._device = device
        self._memory = memory
        self._truths = TruthMaker(device, watch)
        self._truth: Truth | None = None
        self._call: Call | None = None

    def measure_case(self, problem: Problem, method: str, backward: bool) -> Row:
        self.identify(problem, method)
        return self.call(problem, method, backward) or self.judge()

    def identify(self, problem: Problem, method: str) -> dict[str, Cell]:
        """Make the inputs, and give the identity of the case."""
        backend = backends.build(method)
        return {
            **identity_of(problem, method),
            "revision": revision_of(backend),
            "max_subtraction": backend.max_subtraction,
            "scale_value": self._truth_of(problem).inputs.exact.scale_value,
            "device": self._device.type,
        }

    def call(self, problem: Problem, method: str, backward: bool) -> Row | None:
        """Call the method's kernels, and nothing else: a hole, or None when there is something to judge."""
        cells, truth, backend = self.identify(problem, method), self._truth_of(problem), backends.build(method)
        x, asks = truth.inputs.rounded, asked_of(problem.inputs)
        try:
            with (
                watched(x.tensors, self._device, self._memory),
                prepare_asked(backend, x, asks) as attend,
                self.watch.timing("kernels"),
            ):
                out, first = time_first(attend, self._device)
                _require_output(out, truth)
                profiled = profile_call(attend, self._device)
        except (Exception, SystemExit) as error:  # any kernel may raise anything, and the run goes on
            return hole_of(cells, error)
        gradients = call_backward(backend, truth, self._device, self.watch, self._memory) if backward else None
        self._call = Call(cells, truth, out, first, profiled, gradients)
        return None

    def judge(self) -> Row:
        """The row of the last call."""
        call, self._call = self._call, None
        assert call is not None
        truth = truth_for(backends.build(str(call.cells["method"])), call.truth)
        cells = {
            **call.cells,
            "status": Status.OK,
            "ran": " ".join(call.profiled.operators),
            **self._judge(call.out, truth),
            "latency_first": call.first,
            "peak_memory": call.profiled.peak_memory,
            "threads": torch.get_num_threads(),
        }
        if call.backward is not None:
            cells |= judge_backward(call.backward, truth, self._device, self.watch)
        if truth is not call.truth:
            return Row(cells)  # the bounds are those of a softmax
        with self.watch.timing("errors"), one_thread(self._device):
            cells |= first_failure(cells, call.out, truth)
            gradients = call.backward.gradients if isinstance(call.backward, Backward) else None
            cells |= call.truth.bounds.cells(str(cells["method"]), call.out, gradients)
        return Row(cells)

    def _judge(self, out: Tensor, truth: Truth) -> dict[str, Cell]:
        arithmetic, total = truth.arithmetic, truth.total
        with self.watch.timing("errors"), one_thread(self._device):
            kept = ~arithmetic.masked_rows
            cells: dict[str, Cell] = asdict(count_incidence(out, arithmetic))
            for prefix, right in (("out", arithmetic), ("out_total", total)):
                cells |= error_cells(prefix, measure_errors(out, right.out, truth.format, kept))
        return {**cells, **asdict(truth.hazards)}

    def sample(self, task: Task, rows: list[Row]) -> list[Row]:
        with self.watch.timing("kernels"):
            return sample_latency_of(task, rows, self._truth_of(task.problem), self._device)

    def _truth_of(self, problem: Problem) -> Truth:
        """Made once for the methods of a problem, which follow each other."""
        if self._truth is None or self._truth.problem != problem:
            self._truth = self._call = None  # let go of the old one before the new one is made
            self._truth = self._truths.of(problem)
        return self._truth


def _require_output(out: object, truth: Truth) -> None:
    x = truth.inputs.rounded
    wanted = (*x.q.shape[:3], x.v.shape[-1])
    if not isinstance(out, Tensor):
        raise TypeError(f"the method returned {type(out).__name__}, not a tensor")
    if tuple(out.shape) != wanted:
        raise ValueError(f"the method returned shape {tuple(out.shape)}, not {wanted}")
    for what in ("dtype", "device"):
        if getattr(out, what) != getattr(x.q, what):
            raise TypeError(f"the method returned {what} {getattr(out, what)}, not {getattr(x.q, what)}")

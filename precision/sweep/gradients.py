"""The backward pass of a case: gradients against their fp64 reference."""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch

from precision.backends.backend import Backend, Refused
from precision.backends.gradient import prepare_gradients
from precision.latency.clock import time_first
from precision.numerics.gradients import Gradients
from precision.numerics.metrics import measure_errors
from precision.records.row import Cell
from precision.sweep.conduct import watched
from precision.sweep.error_cells import error_cells
from precision.sweep.stopwatch import Stopwatch
from precision.sweep.truth import Truth
from precision.threads import one_thread


@dataclass(frozen=True)
class Backward:
    """Gradients as a method gave them, and the seconds of its first forward and backward pass together."""

    gradients: Gradients
    first: float


def call_backward(
    backend: Backend, truth: Truth, device: torch.device, watch: Stopwatch, memory: int | None
) -> Backward | str:
    """The backward pass, or why there is none; that takes nothing from the forward row."""
    x, do = truth.inputs.rounded, truth.upstream
    try:
        with (
            watched([*x.tensors, do], device, memory),
            prepare_gradients(backend, x, do) as differentiate,
            watch.timing("kernels"),
        ):
            return Backward(*time_first(differentiate, device))
    except Refused as error:
        return f"refused: {error}"
    except (Exception, SystemExit) as error:  # any kernel may raise anything, and the run goes on
        return f"raised: {type(error).__name__}: {error}"


def judge_backward(backward: Backward | str, truth: Truth, device: torch.device, watch: Stopwatch) -> dict[str, Cell]:
    """Cells of the backward pass."""
    if isinstance(backward, str):
        return {"backward": backward}
    cells = _judge(backward.gradients, truth, device, watch)
    return {"backward": "ok", "backward_latency_first": backward.first, **cells}


def _judge(given: Gradients, truth: Truth, device: torch.device, watch: Stopwatch) -> dict[str, Cell]:
    right = truth.gradients
    cells: dict[str, Cell] = {}
    with watch.timing("errors"), one_thread(device):
        for name in (field.name for field in fields(Gradients)):
            gradient = getattr(given, name)
            cells |= error_cells(name, measure_errors(gradient, getattr(right, name), truth.format))
            cells[f"{name}_nonfinite"] = int((~gradient.isfinite()).sum())
    return cells

"""The backward pass of a case: gradients against their fp64 reference."""

from __future__ import annotations

from dataclasses import fields

import torch

from precision.backends.backend import Backend, Refused
from precision.backends.gradient import prepare_gradients
from precision.latency.clock import time_first
from precision.numerics.gradients import Gradients
from precision.numerics.metrics import measure_errors
from precision.records.row import Cell
from precision.sweep.error_cells import error_cells
from precision.sweep.stopwatch import Stopwatch
from precision.sweep.truth import Truth
from precision.threads import one_thread


def measure_gradients(backend: Backend, truth: Truth, device: torch.device, watch: Stopwatch) -> dict[str, Cell]:
    """Cells of the backward pass; one that cannot run is a reason, and takes nothing from the forward row."""
    try:
        with (
            prepare_gradients(backend, truth.inputs.rounded, truth.upstream) as differentiate,
            watch.timing("kernels"),
        ):
            given, first = time_first(differentiate, device)
    except Refused as error:
        return {"backward": f"refused: {error}"}
    except Exception as error:  # any kernel may raise anything, and the run goes on
        return {"backward": f"raised: {type(error).__name__}: {error}"}
    return {"backward": "ok", "backward_latency_first": first, **_judge(given, truth, device, watch)}


def _judge(given: Gradients, truth: Truth, device: torch.device, watch: Stopwatch) -> dict[str, Cell]:
    right = truth.gradients
    cells: dict[str, Cell] = {}
    with watch.timing("errors"), one_thread(device):
        for name in (field.name for field in fields(Gradients)):
            gradient = getattr(given, name)
            cells |= error_cells(name, measure_errors(gradient, getattr(right, name), truth.format))
            cells[f"{name}_nonfinite"] = int((~gradient.isfinite()).sum())
    return cells

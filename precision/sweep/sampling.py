"""The latency of a task's methods as samples in their rows."""

from __future__ import annotations

import json
from functools import partial

import torch

from precision.backends.backend import backends
from precision.backends.gradient import prepare_gradients
from precision.records.row import Row, Status
from precision.sweep.outcome import hole_of
from precision.sweep.task import Task
from precision.sweep.truth import Truth
from precision.sweep.turns import Turn, sample_in_turns


def sample_latency_of(task: Task, rows: list[Row], truth: Truth, device: torch.device) -> list[Row]:
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
        found = sample_in_turns(turns, device)
        rows = [_with_samples(row, name, found.get(str(row.cells["method"]))) for row in rows]
    return rows


def _first_seconds(row: Row, name: str) -> float:
    return float(row.cells[f"{name}_first"] or 0.0)


def _with_samples(row: Row, name: str, samples: list[float] | Exception | None) -> Row:
    if samples is None:
        return row
    if isinstance(samples, Exception):
        return hole_of(row.cells, samples)
    return Row({**row.cells, f"{name}_samples": json.dumps(samples)})

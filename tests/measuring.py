"""A task measured in this process."""

from typing import Any

import torch

from precision.problem import Problem, Shape
from precision.records.row import Row
from precision.sweep.grid import Task
from precision.sweep.measure import Bench
from precision.sweep.stopwatch import Stopwatch

CPU = torch.device("cpu")

PROBLEM = Problem(Shape(1, 2, 2, 9, 7, 8, 5), "fp16")


def measured(
    *methods: str, problem: Problem = PROBLEM, backward: bool = False, latency: bool = False, known: Any = None
) -> list[Row]:
    bench = Bench(CPU, Stopwatch())
    return list(bench.measure(Task("s", problem, methods, backward, latency), known or {}))

"""What only a GPU can show: the same numbers as on a CPU, every SDPA backend, and the cost of a call."""

import pytest
import torch

from precision.inputs.make import make_inputs
from precision.numerics.reference import attend
from precision.problem import Problem, Shape
from precision.records.row import Status
from precision.sweep.grid import Task
from precision.sweep.measure import Bench
from precision.sweep.stopwatch import Stopwatch

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
SHAPE = Shape(2, 4, 2, 127, 130, 64, 64)


def test_inputs_and_reference_are_those_of_a_cpu() -> None:
    problem = Problem(SHAPE, "bf16", mask="causal")
    here, there = (make_inputs(problem, torch.device(name)) for name in ("cpu", "cuda"))
    assert torch.equal(here.rounded.q, there.rounded.q.cpu())
    right, on_gpu = attend(here.rounded), attend(there.rounded)
    assert (right.out - on_gpu.out.cpu()).abs().max() < 1e-14
    do = torch.ones_like(right.out)
    assert (right.backward(do).dk - on_gpu.backward(do.cuda()).dk.cpu()).abs().max() < 1e-12


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("method", ["eager", "sdpa", "sdpa-math", "sdpa-flash", "sdpa-efficient", "sdpa-cudnn"])
def test_a_backend_runs_or_says_why_not(method: str, dtype: str) -> None:
    task = Task("s", Problem(SHAPE, dtype), (method,), backward=True, latency=True)
    (row,) = Bench(torch.device("cuda"), Stopwatch()).measure(task, {})
    if row.status is not Status.OK:
        assert row.status in (Status.REFUSED, Status.ABSENT), row.cells["note"]
        return
    # One rounding of the weights and one of the output, and TF32's 2^-11 where fp32 products use it.
    roundoff = {"fp32": 2.0**-11, "fp16": 2.0**-11, "bf16": 2.0**-8}[dtype]
    assert float(row.cells["out_rel_l2"]) < 2 * roundoff  # type: ignore[arg-type]
    assert row.cells["rows_nonfinite"] == 0
    assert int(row.cells["peak_memory"]) > 0  # type: ignore[arg-type]
    assert row.cells["latency_samples"]


def test_fp64_on_a_gpu_is_the_same_mathematics() -> None:
    task = Task("s", Problem(SHAPE, "fp64"), ("eager", "sdpa-math"), backward=False, latency=False)
    for row in Bench(torch.device("cuda"), Stopwatch()).measure(task, {}):
        assert float(row.cells["out_max_abs"]) < 1e-12  # type: ignore[arg-type]

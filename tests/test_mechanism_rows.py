"""Weightings and transformed inputs by name, in a configuration: rows, and errors against their own function."""

import pytest
import torch

from precision.backends.backend import backends
from precision.backends.weighted import reference_of
from precision.formats import FORMATS
from precision.inputs.make import make_inputs
from precision.numerics.metrics import measure_errors
from precision.scores.weighting import weightings
from precision.sweep.config import parse_config
from precision.sweep.grid import plan
from precision.sweep.measure import Bench
from precision.sweep.stopwatch import Stopwatch

pytestmark = pytest.mark.usefixtures("one_thread")


INPUTS = ["rope", "qk_norm[norm=l2]", "qk_norm[norm=layer,gain=2]", "quantised_k[bits=4]", "quantised_k[per=tensor]",
          "asymmetric"]  # fmt: skip

METHODS = [
    *(f"weighting/{name}" for name in weightings.names()),
    "weighting/soft_cap[cap=3.0]", "weighting/sink[logit=2.0]", "weighting/online_softmax[block=5,state=bf16]",
    "weighting/performer[features=16,seed=1]", "weighting/performer[kernel=relu]",
]  # fmt: skip


def test_every_mechanism_has_a_name_and_gives_rows() -> None:
    config = f"""
    title = "t"
    [[sweep]]
    name = "mechanisms"
    methods = {METHODS}
    inputs = {INPUTS}
    scale = ["temperature[gain=2]", "log_dk"]
    q_heads = 2
    kv_heads = 1
    q_len = 5
    kv_len = 9
    d_k = 8
    backward = true
    """
    bench, tasks = Bench(torch.device("cpu"), Stopwatch()), plan(parse_config(config))
    with torch.no_grad():
        rows = [row.cells for task in tasks for row in bench.measure(task, {})]
    assert {row["method"] for row in rows} == set(METHODS)
    assert len(rows) == len(METHODS) * len(INPUTS) * 2 * 3
    assert {(row["status"], row["backward"], row["rows_nonfinite"]) for row in rows} == {("ok", "ok", 0)}


@pytest.mark.parametrize("method", ["weighting/linear", "weighting/sink", "weighting/soft_cap[cap=3.0]"])
def test_the_error_of_another_function_is_its_own_rounding(method: str) -> None:
    """In fp64 it is 0, where against the softmax it would be as large as the outputs; in fp32 some 2^-24."""
    config = f"""
    title = "t"
    [[sweep]]
    name = "own"
    methods = ["{method}", "eager"]
    inputs = "large[std=3]"
    dtype = ["fp64", "fp32"]
    q_len = 5
    kv_len = 9
    d_k = 8
    backward = true
    """
    bench = Bench(torch.device("cpu"), Stopwatch())
    with torch.no_grad():
        rows = [row.cells for task in plan(parse_config(config)) for row in bench.measure(task, {})]
    by_case = {(row["dtype"], row["method"]): row for row in rows}
    for tensor in ("out", "dq", "dk", "dv"):
        assert by_case["fp64", method][f"{tensor}_max_abs"] == 0
        assert 0 < float(by_case["fp32", method][f"{tensor}_max_abs"]) < 1e-3  # type: ignore[arg-type]
        assert 0 < float(by_case["fp64", "eager"][f"{tensor}_max_abs"]) < 1e-12  # type: ignore[arg-type]
    assert 0 < float(by_case["fp32", method]["out_total_max_abs"]) < 1e-3  # type: ignore[arg-type]
    problem = next(task.problem for task in plan(parse_config(config)) if task.problem.dtype == "fp32")
    x, backend = make_inputs(problem, torch.device("cpu")).rounded, backends.build(method)
    with backend.prepare(x) as call:
        again = measure_errors(call(), reference_of(backend, x).out, FORMATS["fp32"])
    assert again is not None and again.max_abs == by_case["fp32", method]["out_max_abs"]
    assert by_case["fp32", method]["logit_max"] == by_case["fp32", "eager"]["logit_max"]

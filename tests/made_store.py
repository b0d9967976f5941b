"""A store of as many rows as are asked for: the grid is planned, the numbers are drawn and not measured."""

import json
import math
import random

from precision.problem import Case
from precision.records.row import Row
from precision.records.store import Store
from precision.spec import Spec
from precision.sweep.config import parse_config
from precision.sweep.grid import plan

ENVIRONMENT = {"torch": "2.13.0", "cpu": "a cpu", "threads": 2, "device": "cpu"}

# Every section of a report grows with the seeds, and with the lengths that stand for other settings.
_CONFIG = """
title = "A big grid"

[[sweep]]
name = "ablation"
methods = ["eager", "eager[max_subtraction=false]", "sdpa-math", "sdpa-flash"]
scale = ["sqrt_dk", "none"]
mask = ["none", "causal"]
q_heads = [1, 4]
q_len = [64, 128, 256]
d_k = [16, 32, 64, 128, 256]
seed = {seeds}

[[sweep]]
name = "hard"
inputs = ["large[std=1]", "large[std=2]", "large[std=4]", "large[std=8]", "offset[mean=10]", "aligned", "outlier"]
methods = ["eager", "sdpa-math", "sdpa-flash", "sdpa-math-reduced"]
q_len = [64, 128]
d_k = 64
backward = true
seed = {seeds}

[[sweep]]
name = "timed"
methods = ["eager", "sdpa-math", "sdpa-flash"]
q_len = {lengths}
d_k = [64, 128]
latency = true
backward = true

[[sweep]]
name = "captured"
inputs = "captured"
methods = ["eager", "eager[max_subtraction=false]", "sdpa-flash"]
scale = ["sqrt_dk", "none"]

[[sweep]]
name = "zoo"
inputs = {cases}
methods = ["eager", "sdpa-math", "sdpa-flash"]
"""
_UNIT_ROUNDOFF = {"fp64": 2.0**-53, "fp32": 2.0**-24, "fp16": 2.0**-11, "bf16": 2.0**-8}


def config_text(seeds):
    """The configuration; each seed is 1,776 cases."""
    lengths = list(range(8, 8 + 4 * seeds))
    cases = [f"zoo/residue[q_len={length}]" for length in lengths]
    return _CONFIG.format(seeds=list(range(seeds)), lengths=lengths, cases=json.dumps(cases))


def make_store(path, seeds, draws=("first",)):
    """One run a draw, named by a text that seeds it; how many rows each has."""
    text = config_text(seeds)
    tasks = plan(parse_config(text))
    with Store(path) as store:
        for draw in draws:
            run = store.runs.begin("big", "A big grid", text, "0+0", ENVIRONMENT)
            generator = random.Random(draw)
            cases = ((task, method) for task in tasks for method in task.methods)
            store.rows.add(run, {place: _row(*case, generator) for place, case in enumerate(cases)})
            store.runs.finish(run, {"kernels": 60.0, "references": 20.0, "wall": 100.0})
    return sum(len(task.methods) for task in tasks)


def _row(task, method, draw):
    problem, shape = task.problem, task.problem.shape
    cells = {
        "case": Case(problem, method).key,
        "sweep": task.sweep,
        "source": task.source,
        "problem": problem.key,
        "method": method,
        "backend": Spec.parse(method).name,
        "max_subtraction": "max_subtraction=false" not in method,
        "inputs": problem.inputs,
        "dtype": problem.dtype,
        "mask": problem.mask,
        "scale": str(problem.scale),
        "scale_value": 1.0 if problem.scale == "none" else shape.d_k**-0.5,
        "seed": problem.seed,
        "device": "cpu",
        **vars(shape),
    }
    if draw.random() < 0.08:
        reason = f"cannot do {shape}, attempt {draw.randrange(10**6)}"  # other words in every row, as some have
        return Row({**cells, "status": "refused", "note": reason})
    return Row({**cells, "status": "ok", **_measured(task, cells, draw)})


def _measured(task, cells, draw):
    rows = cells["batch"] * cells["q_heads"] * cells["q_len"]
    pairs = rows * cells["kv_len"]
    std = float(dict(Spec.parse(cells["inputs"]).options).get("std", 1.0))
    logit_std = std * std * cells["scale_value"] * math.sqrt(cells["d_k"])
    error = _UNIT_ROUNDOFF[cells["dtype"]] * (1 + logit_std / 4) * draw.lognormvariate(0, 0.5)
    spoilt = cells["dtype"] == "fp16" and logit_std > 5 and not cells["max_subtraction"]
    nonfinite = min(rows, int(rows * draw.random() * 1.2)) if spoilt else 0
    measured = {
        **_errors("out", error),
        **_errors("out_total", 1.4 * error),
        "rows": rows,
        "rows_nan": nonfinite,
        "rows_inf": 0,
        "rows_nonfinite": nonfinite,
        **dict.fromkeys(("rows_masked", "rows_masked_wrong", "rows_nan_due", "rows_nan_lost"), 0),
        "pairs": pairs,
        "logit_std": logit_std,
        "logit_max": 4.5 * logit_std,
        "raw_std": std * std * math.sqrt(cells["d_k"]) * draw.lognormvariate(0, 0.1),
        "raw_max": 5 * std * std * math.sqrt(cells["d_k"]),
        **dict.fromkeys(("scores_over_before_scale", "scores_over_after_scale"), 0),
        **dict.fromkeys(("exp_inf_unshifted", "rows_exp_inf_unshifted", "rows_sum_inf_unshifted"), nonfinite),
        "weights_zero": int(pairs * draw.random()) if logit_std > 5 else 0,
        "weights_zero_mass_mean": 1e-7,
        "out_condition": 10 * logit_std * draw.lognormvariate(0, 0.3),
        "out_error_over_bound": 0.1 * draw.random(),
        "weights_zero_mass_max": 1e-6 * draw.random(),
        "peak_memory": 8 * pairs,
        "latency_first": 1e-3,
        "threads": 2,
        "ran": "aten::_scaled_dot_product_flash_attention_for_cpu" if cells["method"] == "sdpa-flash" else "",
    }
    if nonfinite == rows:
        measured = {name: value for name, value in measured.items() if not name.startswith("out")}
    if task.backward:
        measured["backward"] = "ok"
        for name in ("dq", "dk", "dv"):
            measured |= {**_errors(name, 2 * error), f"{name}_nonfinite": nonfinite}
    if task.latency:
        for name, factor in (("latency", 1e-9), ("backward_latency", 3e-9)):
            measured[f"{name}_samples"] = json.dumps([factor * pairs * draw.lognormvariate(0, 0.05) for _ in range(9)])
    return measured


def _errors(tensor, error):
    return {
        f"{tensor}_max_abs": 4 * error,
        f"{tensor}_rms": error,
        f"{tensor}_rel_l2": error,
        f"{tensor}_max_ulp": 1e3,
        f"{tensor}_median_ulp": 0.4,
        f"{tensor}_p99_ulp": 2.0,
        f"{tensor}_bias_ulp": 0.01,
        f"{tensor}_worst": "[0, 0, 1, 2]",
        f"{tensor}_compared": 1000,
    }

"""Rows made by hand, for tests that compute by hand what a report should say of them."""

import json

from precision.records.columns import COLUMNS
from precision.records.frame import make_frame
from precision.records.run_record import RunRecord
from precision.report.rows import measured_rows

UNSHIFTED = "eager[max_subtraction=false]"

RECORD = RunRecord(
    id=1,
    name="made",
    title="A made run",
    config='title = "A made run"\n',
    code="0+0",
    environment={"torch": "2.13.0", "cpu": "a cpu", "threads": 2, "device": "cpu"},
    started="2026-01-02T03:04:05+00:00",
    finished="2026-01-02T03:04:15+00:00",
    seconds={"kernels": 4.0, "references": 1.0, "errors": 2.0, "wall": 10.0},
)


def make_row(**cells):
    """One measured row; whatever is not given is unremarkable."""
    cells = {
        "status": "ok",
        "sweep": "s",
        "method": "eager",
        "backend": "eager",
        "max_subtraction": True,
        "inputs": "normal",
        "source": "",
        "dtype": "fp16",
        "mask": "none",
        "scale": "sqrt_dk",
        "scale_value": 0.125,
        **dict.fromkeys(("batch", "q_heads", "kv_heads"), 1),
        **dict.fromkeys(("q_len", "kv_len"), 10),
        "d_k": 64,
        "d_v": 64,
        "seed": 0,
        "device": "cpu",
        "out_max_abs": 1e-3,
        "out_rms": 3e-4,
        "out_rel_l2": 1e-3,
        "out_total_rms": 5e-4,
        "rows": 100,
        "rows_nonfinite": 0,
        "pairs": 1000,
        "weights_zero": 0,
        "weights_zero_mass_max": 0.0,
        **dict.fromkeys(("rows_exp_inf_unshifted", "rows_sum_inf_unshifted"), 0),
        **dict.fromkeys(("scores_over_before_scale", "scores_over_after_scale"), 0),
        **dict.fromkeys(("logit_std", "logit_max", "raw_std", "raw_max"), 1.0),
        "threads": 2,
        **cells,
    }
    problem = [str(cells[name]) for name in ("inputs", "dtype", "mask", "scale", "d_k", "q_len", "seed")]
    cells.setdefault("problem", "-".join(problem))
    cells.setdefault("case", f"{cells['problem']}-{cells['method']}")
    return cells


def make_frame_of(*rows):
    return make_frame([tuple(row.get(column.name) for column in COLUMNS) for row in rows])


def make_rows(*rows):
    return measured_rows(make_frame_of(*rows))


def four_cells(counts, **cells):
    """The 2 x 2 with these counts of rows not finite, in the order of the pages: scaled first, shifted first."""
    places = [(scale, method) for scale in ("sqrt_dk", "none") for method in ("eager", UNSHIFTED)]
    return [
        make_row(scale=scale, method=method, max_subtraction=method == "eager", rows_nonfinite=count, **cells)
        for (scale, method), count in zip(places, counts, strict=True)
    ]


def plain(text):
    """Without the spaces that keep a number and its unit on one line."""
    return text.replace("\N{NO-BREAK SPACE}", " ")


def timed(method, error, seconds):
    """One row with a latency."""
    return make_row(method=method, out_rel_l2=error, latency_samples=json.dumps([seconds] * 7))

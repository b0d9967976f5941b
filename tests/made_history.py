"""Figures, and result files of asv, of pytest-benchmark and of our store, made by hand."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from precision.history.figures import Figure
from precision.records.row import Row
from precision.records.store import Store

START = datetime(2026, 1, 1, tzinfo=UTC)


def figure(commit: int, value: float, **changed: Any) -> Figure:
    """A figure of commit number `commit`, called `c0`, `c1`, ..."""
    date = START + timedelta(days=commit)
    cells: dict[str, Any] = {
        "source": "asv",
        "machine": "m",
        "torch": "2.13.0",
        "benchmark": "error.Forward.track_out_rms(eager, fp32)",
        "version": "1",
        "kind": "error",
        "commit": f"c{commit}",
        "date": date,
        "measured": date,
        "value": value,
    }
    return Figure(**{**cells, **changed})


def series(*values: float, **changed: Any) -> list[Figure]:
    """One value a commit, the oldest first."""
    return [figure(commit, value, **changed) for commit, value in enumerate(values)]


COUNT = {"benchmark": "incidence.Forward.track_nonfinite(eager, fp16)", "kind": "nonfinite"}


def write_asv(folder: Path, **changed: Any) -> Path:
    """A result file as asv's manual describes version 2 of the format."""
    content = {
        "version": 2,
        "commit_hash": "0123456789abcdef",
        "date": 1767225600000,  # 2026-01-01
        "env_name": "virtualenv-py3.11-torch2.13.0",
        "params": {"machine": "m", "python": "3.11", "torch": "2.13.0"},
        "result_columns": ["result", "params", "version", "started_at", "duration", "stats_ci_99_a", "stats_ci_99_b"],
        "results": {
            "latency.Forward.time_forward": [
                [0.5, None, math.nan, 0.25],
                [["'eager'", "'sdpa-math'"], ["'fp32'", "'fp16'"]],
                "1",
                1767225700000,
                1.0,
                [0.4, None, None, 0.2],
                [0.6, None, None, 0.3],
            ],
            "error.track_plain": [[1e-7], [], "1", 1767225700000],
            "error.track_broken": [None, [], "1", 1767225700000],
        },
        **changed,
    }
    path = folder / "m" / "01234567-virtualenv.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))
    (folder / "m" / "machine.json").write_text("{}")
    (folder / "benchmarks.json").write_text("{}")
    return path


def write_pytest(folder: Path, **extra: Any) -> None:
    content = {
        "machine_info": {"node": "m", "torch": "2.13.0+cpu"},
        "commit_info": {"id": "0123456789abcdef", "time": "2026-01-01T02:00:00+02:00", "dirty": False},
        "benchmarks": [{"fullname": "a.py::test_a[eager]", "extra_info": extra, "stats": {"median": 0.5}}],
        "datetime": "2026-01-02T00:00:00+00:00",
    }
    (folder / "Linux-CPython").mkdir(parents=True)
    (folder / "Linux-CPython" / "0001_0123.json").write_text(json.dumps(content))


def write_store(path: Path, *counts: int) -> None:
    with Store(path) as store:
        for index, count in enumerate(counts):
            environment = {"torch": "2.13.0", "cpu": "chip", "threads": 2}
            run = store.runs.begin("name", "title", "", f"0.1.0+{index}", environment)
            row: dict[str, Any] = {"case": "k", "status": "ok", "method": "eager", "inputs": "normal", "dtype": "fp16"}
            row |= {"scale": "none", "mask": "none", "seed": 0, "batch": 1, "q_heads": 2, "kv_heads": 2, "q_len": 8}
            row |= {"kv_len": 8, "d_k": 4, "d_v": 4, "rows": 16, "rows_nonfinite": count, "out_max_abs": 0.5}
            store.rows.add(run, {0: Row({**row, "latency_samples": "[3.0, 1.0, 2.0]"})})
            store.rows.add(
                run, {0: Row({"case": "l", "status": "refused", "note": "why", "method": "eager", **_shape()})}
            )


def _shape() -> dict[str, int]:
    return {"batch": 1, "q_heads": 1, "kv_heads": 1, "q_len": 1, "kv_len": 1, "d_k": 1, "d_v": 1}

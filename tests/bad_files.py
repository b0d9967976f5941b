"""One sound file of each kind, ways to spoil them, and what every command owes to whoever gives it one."""

import io
import sys

import torch
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from made_rows import make_row

from precision import cli
from precision.inputs.capture_file import CallTensors, write
from precision.records.columns import COLUMNS
from precision.records.row import Row
from precision.records.store import Store

CONFIG = """
title = "Tiny"
[[sweep]]
name = "s"
methods = ["eager", "sdpa-math"]
dtype = "fp16"
q_len = 2
d_k = 4
"""


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


def fuzz(examples):
    """Settings of a test that spoils something in many ways; the files are the same for all of them."""
    return settings(
        max_examples=examples,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )


def run(*arguments):
    """Status, stdout and stderr of `precision` in this process."""
    before = sys.argv, sys.stdout, sys.stderr
    sys.argv, sys.stdout, sys.stderr = ["precision", *arguments], io.StringIO(), io.StringIO()
    try:
        cli.main()
    except SystemExit as end:
        return int(end.code or 0), sys.stdout.getvalue(), sys.stderr.getvalue()
    finally:
        sys.argv, sys.stdout, sys.stderr = before


def require_sound(status, err):
    """Status 0 or 1 and silence, or status 2 and one sentence."""
    assert status in (0, 1, 2), (status, err)
    if status == 2:
        assert err.startswith("precision: ") and err.count("\n") == 1 and len(err) > 20, err
    else:
        assert err == ""


def make_folder(folder):
    """A folder with one sound file of each kind."""
    (folder / "tiny.toml").write_text(CONFIG)
    make_capture(folder / "capture.safetensors")
    make_runs(folder / "store.sqlite")
    (folder / "a folder").mkdir()
    return folder


def make_capture(path):
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, 2, 3, 4, generator=generator) for _ in range(3))
    write(path, [CallTensors("one", q, k, v), CallTensors("two", q.half(), k.half(), v.half())], model="m", source="s")


def make_runs(path):
    rows = [make_row(method=method, dtype=dtype) for method in ("eager", "sdpa-math") for dtype in ("fp16", "fp32")]
    rows.append({**identity(make_row(method="flex")), "status": "refused", "note": "cannot"})
    with Store(path) as store:
        for _ in range(2):
            number = store.runs.begin("made", "Made", CONFIG, "0+0", {"torch": "2.13.0"})
            for cells in rows:
                store.rows.add(number, {0: Row(cells)})
            store.runs.finish(number, {"wall": 1.0})


def identity(cells):
    names = {column.name for column in COLUMNS if column.group == "identity"}
    return {name: value for name, value in cells.items() if name in names}

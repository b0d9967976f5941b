"""A run from its configuration to its rows: what is kept, what is taken again, and what is refused before it begins."""

import json
from pathlib import Path

import pytest
import torch

import precision
from precision.records.store import Store
from precision.sweep.environment import code_version
from precision.sweep.run import execute


def test_a_run_keeps_every_row_and_a_second_one_measures_nothing_but_latency(tmp_path: Path) -> None:
    config = tmp_path / "small.toml"
    config.write_text(
        """
        title = "small"
        [[sweep]]
        name = "plain"
        methods = ["eager", "sdpa-math"]
        dtype = ["fp16"]
        q_len = 8
        d_k = 4
        [[sweep]]
        name = "timed"
        methods = ["eager", "sdpa-math"]
        dtype = ["fp16"]
        q_len = 8
        d_k = 4
        latency = true
        """
    )
    path = tmp_path / "s.sqlite"
    heard = []
    first = execute(str(config), device="cpu", store=path, listener=heard.append)
    assert [(progress.done, progress.cases) for progress in heard] == [(i, 4) for i in range(1, 5)]
    second = execute(str(config), device="cpu", store=path)
    with Store(path) as store:
        frames = [store.rows.frame(first), store.rows.frame(second)]
        record = store.runs.find(second)
    assert record.finished
    assert "references" not in record.seconds  # nothing but latency was left to do
    numbers = [column for column in frames[0] if "latency" not in column]
    assert frames[0][numbers].equals(frames[1][numbers])
    assert frames[1]["latency"].isna().tolist() == [True, True, False, False]
    assert json.loads(frames[1]["latency_samples"][2]) != json.loads(frames[0]["latency_samples"][2])
    third = execute(str(config), device="cpu", store=path, fresh=True)
    with Store(path) as store:
        assert "references" in store.runs.find(third).seconds


def test_the_api_gives_the_rows_as_a_frame(tmp_path: Path) -> None:
    config = tmp_path / "one.toml"
    config.write_text('title = "t"\n[[sweep]]\nname = "a"\nmethods = ["eager"]\ndtype = ["fp64"]\nq_len = 5\nd_k = 3')
    frame = precision.run(str(config), device="cpu", store=tmp_path / "s.sqlite")
    assert frame["status"].tolist() == ["ok"]
    assert frame["out_max_abs"][0] < 1e-12


def test_inputs_larger_than_the_machine_are_refused_before_anything_is_made(tmp_path: Path) -> None:
    config = tmp_path / "huge.toml"
    config.write_text(
        'title = "t"\n[[sweep]]\nname = "big"\nmethods = ["eager"]\nq_len = 1_000_000_000\nd_k = 4096\nq_heads = 64'
    )
    with pytest.raises(precision.UsageError, match=r"'big'.*GiB"):
        execute(str(config), store=tmp_path / "s.sqlite")
    assert not (tmp_path / "s.sqlite").exists()


def test_the_code_version_follows_every_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of other code must not be taken for those of this one, wherever the code differs."""
    for name in ("__init__.py", "formats.py", "deep/inside.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("one = 1\n")
    monkeypatch.setattr(precision, "__file__", str(tmp_path / "__init__.py"))
    seen = [code_version()]
    for name in ("formats.py", "deep/inside.py"):
        (tmp_path / name).write_text("one = 2\n")
        seen.append(code_version())
    assert len(set(seen)) == 3
    assert code_version() == seen[-1]


def test_a_device_that_is_not_there_is_refused() -> None:
    for device in ("tpu", *(() if torch.cuda.is_available() else ("cuda",))):
        with pytest.raises(precision.UsageError, match=device):
            execute("quick", device=device)

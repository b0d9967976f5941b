"""Configurations and the grid of problems that they stand for."""

import textwrap
from pathlib import Path

import pytest

from precision.errors import UsageError
from precision.sweep.config import config_names, parse_config, read_config_text
from precision.sweep.grid import Task, plan

SWEEP = """
title = "test"
[[sweep]]
name = "s"
methods = ["eager"]
"""


def planned(lines: str) -> list[Task]:
    return plan(parse_config(SWEEP + textwrap.dedent(lines)))


def test_the_grid_is_the_product_of_its_axes_with_the_dtype_fastest() -> None:
    tasks = planned(
        """
        q_len = [8, 16]
        d_k = 4
        scale = ["sqrt_dk", "none", 0.25]
        mask = ["none", "causal"]
        dtype = ["fp32", "bf16"]
        seed = [0, 1]
        """
    )
    assert len(tasks) == 2 * 3 * 2 * 2 * 2
    assert [task.problem.dtype for task in tasks[:4]] == ["fp32", "bf16", "fp32", "bf16"]
    assert {task.problem.scale for task in tasks} == {"sqrt_dk", "none", 0.25}
    assert len({task.problem.key for task in tasks}) == len(tasks)


def test_keys_left_out_take_the_query_side() -> None:
    (shape,) = {task.problem.shape for task in planned("q_heads = 6\nq_len = 5\nd_k = 8")}
    assert (shape.kv_heads, shape.kv_len, shape.d_v, shape.batch) == (6, 5, 8, 1)


def test_a_preset_fixes_heads_and_widths() -> None:
    (shape,) = {task.problem.shape for task in planned('preset = "deepseek-v3-mla"\nq_len = 5')}
    assert (shape.q_heads, shape.kv_heads, shape.d_k, shape.d_v) == (128, 128, 192, 128)


def test_methods_are_canonical_and_doubles_fall_together() -> None:
    tasks = plan(
        parse_config(
            SWEEP.replace('["eager"]', '["eager[max_subtraction=true]", "eager", "sdpa-math"]') + "q_len = 8\nd_k = 4"
        )
    )
    assert tasks[0].methods == ("eager", "sdpa-math")


def test_captured_stands_for_every_call_with_its_own_mask_and_scale() -> None:
    tasks = planned('inputs = "captured"\ndtype = "fp16"')
    assert [task.problem.inputs for task in tasks] == [f"captured[call={i}]" for i in range(6)]
    assert {task.problem.mask for task in tasks} == {"captured"}
    assert tasks[0].problem.scale == pytest.approx(32**-0.5)
    assert tasks[0].source
    assert len({task.problem.digest for task in tasks}) == 1
    assert len(tasks[0].problem.digest) == 64


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("q_len = 8", ["'s'", "needs d_k"]),
        ("d_k = 8", ["'s'", "needs q_len"]),
        ("q_len = 8\nd_k = 4\nd_kk = 3", ["unknown key 'd_kk'", "'d_k'", "sweep 1"]),
        ("q_len = 8\nd_k = 0", ["'d_k'", "greater than", "not 0"]),
        ("q_len = -1\nd_k = 4", ["'q_len'", "not -1"]),
        ('q_len = "long"\nd_k = 4', ["'q_len'", "integer"]),
        ("q_len = []\nd_k = 4", ["'q_len'", "at least 1"]),
        ("q_len = 8\nd_k = 4\nq_heads = 6\nkv_heads = 4", ["q_heads 6", "multiple", "kv_heads 4"]),
        ('q_len = 8\nd_k = 4\ndtype = "float16"', ["unknown dtype 'float16'", "fp16"]),
        ('q_len = 8\nd_k = 4\nscale = "sqrt"', ["unknown scale 'sqrt'", "sqrt_dk", "number"]),
        ('q_len = 8\nd_k = 1\nscale = "log_dk"', ["log_dk", "2 or more"]),
        ('q_len = 8\nd_k = 4\nmask = "casual"', ["unknown mask 'casual'", "'causal'"]),
        ('q_len = 8\nd_k = 4\nmask = "captured"', ["captured inputs only"]),
        ('q_len = 8\nd_k = 4\ninputs = "nromal"', ["unknown distribution", "'normal'"]),
        ('q_len = 8\nd_k = 4\ninputs = "large[sdt=2]"', ["no option 'sdt'", "'std'"]),
        ('preset = "llama-3-8"\nq_len = 4', ["unknown preset", "'llama-3-8b'"]),
        ('preset = "bert-base"\nq_len = 4\nd_k = 4', ["preset", "d_k"]),
        ('inputs = "captured"\nd_k = 4', ["captured inputs", "d_k"]),
        ('inputs = "captured[call=6]"', ["calls 0 to 5"]),
        ('inputs = "captured[call=-1]"', ["call", "greater than or equal to 0"]),
        ('inputs = "captured[call=one]"', ["call", "integer"]),
        ('inputs = "captured[file=nowhere.safetensors]"', ["nowhere.safetensors", "precision capture"]),
        ("q_len = 8\nd_k = 4\nseed = -1", ["'seed'"]),
        ("q_len = ", ["not valid TOML"]),
        ('q_len = 8\nd_k = 4\nlatency = "yes"', ["'latency'", "boolean"]),
    ],
)
def test_a_wrong_configuration_says_what_to_mend(lines: str, words: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        planned(lines)
    assert all(word in str(caught.value) for word in words), str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["'title' is missing"]),
        ('title = "t"', ["'sweep' is missing"]),
        ('title = "t"\nsweep = []', ["'sweep'", "at least 1"]),
        ('title = "t"\nsweeps = 1', ["sweep"]),
        ('title = "t"\n[[sweep]]\nname = "a"', ["'methods' is missing", "sweep 1"]),
        (SWEEP + "q_len = 4\nd_k = 4" + SWEEP.replace('title = "test"', "") + "q_len = 4\nd_k = 4", ["two sweeps"]),
    ],
)
def test_a_wrong_file_says_what_to_mend(text: str, words: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        plan(parse_config(text))
    assert all(word in str(caught.value) for word in words), str(caught.value)


@pytest.mark.parametrize("name", config_names())
def test_every_configuration_that_ships_can_be_planned(name: str) -> None:
    assert plan(parse_config(read_config_text(name)))


def test_the_default_configuration_is_large_enough() -> None:
    tasks = plan(parse_config(read_config_text("default")))
    assert sum(len(task.methods) for task in tasks) >= 200
    assert any(task.problem.inputs.startswith("captured") for task in tasks)


def test_an_unreadable_configuration_is_refused(tmp_path: Path) -> None:
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe\x00")
    for path in (binary, tmp_path):
        with pytest.raises(UsageError, match="cannot be read"):
            read_config_text(str(path))
    with pytest.raises(UsageError, match="did you mean 'default'"):
        read_config_text("defualt")

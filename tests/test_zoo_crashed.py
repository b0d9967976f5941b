"""A case of the zoo that ends the process of a kernel has a mark with its reason; the other backends go on."""

import importlib.metadata

import pytest
from made_rows import make_frame_of

from precision.sweep.config import parse_config
from precision.sweep.grid import plan
from precision.sweep.isolation import IsolatedBench
from precision.sweep.worker import Settings
from precision.zoo.marks import marks

CONFIG = """
title = "t"
[[sweep]]
name = "s"
methods = ["jax", "eager", "sdpa-math", "sdpa-flash"]
inputs = "zoo/width"
dtype = "bf16"
"""


def test_a_compiler_that_ends_the_process_is_a_mark_with_its_words():
    pytest.importorskip("jax")
    (task,) = plan(parse_config(CONFIG))
    bench = IsolatedBench(Settings("cpu"))
    try:
        found = marks(make_frame_of(*(row.cells for row in bench.measure(task, {})))).set_index("method")
    finally:
        bench.close()
    assert found["symbol"][["eager", "sdpa-math", "sdpa-flash"]].tolist() == ["right"] * 3
    if importlib.metadata.version("jax") == "0.10.2":  # others may mend it
        symbol, reason = found.loc["jax", ["symbol", "reason"]]
        assert symbol == "crashed"
        assert reason.startswith("its process was killed by SIGABRT: ") and "Check failed" in reason

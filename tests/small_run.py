"""A real run that takes a second or two and fills every section of a report."""

from precision.records.store import Store
from precision.sweep.run import execute

CONFIG = """
title = "A small run"

[[sweep]]
name = "ablation"
methods = ["eager", "eager[max_subtraction=false]", "sdpa-math", "sdpa-flash"]
scale = ["sqrt_dk", "none"]
q_len = 64
d_k = [16, 64]

[[sweep]]
name = "captured"
inputs = ["captured[call=0]", "captured[call=5]"]
methods = ["eager", "eager[max_subtraction=false]", "sdpa-flash"]
scale = ["sqrt_dk", "none"]

[[sweep]]
name = "logit-size"
inputs = ["large[std=1]", "large[std=8]"]
methods = ["eager", "sdpa-math"]
dtype = "bf16"
q_len = 16
d_k = 16

[[sweep]]
name = "timed"
methods = ["eager", "sdpa-math"]
dtype = ["fp32", "bf16"]
q_len = 8
d_k = 8
latency = true

[[sweep]]
name = "mathematics"
methods = ["eager", "sdpa-math", "sdpa-flash"]
dtype = "fp64"
q_len = 11
d_k = 8
d_v = [8, 16]
"""


def measure_small_run(folder):
    """The path of the store, the record and the rows."""
    config = folder / "small.toml"
    config.write_text(CONFIG)
    path = folder / "store.sqlite"
    number = execute(str(config), store=path)
    with Store(path) as store:
        return path, store.runs.find(number), store.rows.frame(number)

"""Memory of one forward call."""

from __future__ import annotations

from contextlib import ExitStack

from benchmarks import cases
from precision.sweep.memory import measure_peak_memory


class Forward:
    """The bytes that torch's allocators held at most, and the resident size of the process that made the call."""

    params = (cases.METHODS, cases.DTYPES, ["normal", "minilm-0"])
    param_names = ("method", "dtype", "problem")
    version = "1"

    def setup(self, method: str, dtype: str, problem: str) -> None:
        self.stack = ExitStack()
        self.call = cases.prepare(self.stack, method, cases.make_operands(problem, dtype))

    def teardown(self, method: str, dtype: str, problem: str) -> None:
        self.stack.close()

    def track_peak_memory(self, method: str, dtype: str, problem: str) -> int:
        return measure_peak_memory(self.call, cases.DEVICE)

    def peakmem_forward(self, method: str, dtype: str, problem: str) -> None:
        self.call()
        cases.synchronize()

    track_peak_memory.unit = "bytes"

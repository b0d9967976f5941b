"""Latency of the forward pass, with its errors beside it and asserted."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pytest

from benchmarks import cases, naive
from precision.formats import find_format
from precision.numerics.incidence import count_incidence
from precision.numerics.metrics import measure_errors
from precision.numerics.reference import attend


@pytest.mark.parametrize("problem", ["normal", "outlier", "minilm-0", "minilm-5"])
@pytest.mark.parametrize("dtype", cases.DTYPES)
@pytest.mark.parametrize("method", ["eager", "sdpa-math", "sdpa-flash"])
def test_forward(benchmark: Any, method: str, dtype: str, problem: str) -> None:
    benchmark.group = f"forward {problem} {dtype}"
    x = cases.make_operands(problem, dtype)
    with ExitStack() as stack:
        call = cases.prepare(stack, method, x)
        out = benchmark.pedantic(call, rounds=30, warmup_rounds=3)
    right = attend(x)
    errors = measure_errors(out, right.out, find_format(dtype))
    yardstick = measure_errors(naive.attend_naively(x), right.out, find_format(dtype))
    assert errors is not None and yardstick is not None
    nonfinite = count_incidence(out, right).rows_nonfinite
    benchmark.extra_info |= {"out_max_abs": errors.max_abs, "out_rms": errors.rms, "rows_nonfinite": nonfinite}
    assert nonfinite == 0
    # Twice the error of the plain code in the same dtype: FlashAttention's rule, on the root mean square, which
    # unlike the maximum does not hang on one element.
    assert errors.rms <= 2 * yardstick.rms

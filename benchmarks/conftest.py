"""How pytest runs the benchmarks: once each as tests, or timed with --benchmark-only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Switch the timing off unless it was asked for; `--benchmark-disable` in the ini file would forbid to ask."""
    if not (config.getoption("benchmark_only", False) or config.getoption("benchmark_enable", False)):
        config.option.benchmark_disable = True


def pytest_benchmark_update_machine_info(machine_info: dict[str, Any]) -> None:
    """Keep the torch version with the results, so that `precision history` can tell them apart."""
    machine_info["torch"] = torch.__version__


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)

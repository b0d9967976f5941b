"""Methods against each other on one problem: samples, comparisons, warnings and the share of the roofline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median

import torch

from precision.backends.backend import backends
from precision.errors import UsageError
from precision.latency.cpu import read_cpu_use, warn_of_others, warn_of_threads
from precision.latency.gpu import GpuState, read_gpu_state, warn_of_clocks
from precision.latency.health import warn_of_drift, warn_of_noise, warn_of_subnormals
from precision.latency.ratio import Comparison, compare
from precision.latency.roofline import Roofline, Work, count_work, measure_roofline
from precision.latency.sample import Prepare, sample_rounds
from precision.operands import Operands

_ROUNDS = 60  # tells 10 % apart even on a machine that is not idle; see reports/history/latency.md


@dataclass(frozen=True)
class LatencyComparison:
    """What one comparison saw; the first method is the baseline of the others."""

    samples: Mapping[str, Sequence[float]]  # seconds a call, by method; the same index is the same round
    comparisons: Sequence[Comparison]
    warnings: Sequence[str]
    work: Work
    roofline: Roofline
    gpu: GpuState | None  # after the last sample

    def teraflops(self, method: str) -> float:
        """10^12 floating-point operations a second that the method attained."""
        return self.work.operations / median(self.samples[method]) / 1e12

    def share(self, method: str) -> float:
        """Attained part of the measured roofline."""
        return self.roofline.share(self.work, median(self.samples[method]))

    def __str__(self) -> str:
        lines = [
            f"{name}: {median(values) * 1e3:.3g} ms, {self.teraflops(name):.3g} TFLOP/s, "
            f"{self.share(name):.0%} of the roofline"
            for name, values in self.samples.items()
        ]
        return "\n".join([*lines, *map(str, self.comparisons), *(f"warning: {text}" for text in self.warnings)])


def compare_latency(
    methods: Sequence[str], x: Operands, device: torch.device, *, rounds: int = _ROUNDS, seed: int = 0
) -> LatencyComparison:
    """Time methods (canonical specs of backends) on the operands x, in interleaved, randomised rounds.

    Raises UsageError on fewer than two methods or two alike, Absent or Refused when one of them cannot run.
    """
    if len(set(methods)) < max(len(methods), 2):
        raise UsageError("a comparison needs two or more methods, each of them once")
    prepares: dict[str, Prepare] = {method: partial(backends.build(method).prepare, x) for method in methods}
    gpu, cpu = read_gpu_state(device), read_cpu_use()
    samples = sample_rounds(prepares, device, rounds=rounds, seed=seed)
    gpu_after, cpu_after = read_gpu_state(device), read_cpu_use()
    warnings = [
        *warn_of_threads(),
        *warn_of_others(cpu, cpu_after),
        *warn_of_clocks(gpu, gpu_after),
        *warn_of_subnormals(x),
        *warn_of_noise(samples),
        *warn_of_drift(samples),
    ]
    baseline, *others = methods
    return LatencyComparison(
        samples,
        [compare(name, samples[name], baseline, samples[baseline]) for name in others],
        warnings,
        count_work(x),
        measure_roofline(x.q.dtype, device),
        gpu_after,
    )

"""Can these samples be trusted? Each warning is a sentence that says what was seen and what to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy
import torch
from scipy.stats import kendalltau

from precision.operands import Operands

_NOISE = 0.10  # interquartile range over median: beyond it a difference of a few per cent drowns
_DRIFT = 0.05  # growth from the first to the last third of the samples
_CHANCE = 0.01  # probability of such a trend in samples without one
_SUBNORMAL = 0.001  # share of the elements from which their cost shows in the whole


def warn_of_noise(samples: Mapping[str, Sequence[float]]) -> list[str]:
    """The machine did other work: samples by method, in the order they were taken."""
    warnings = []
    for name, values in samples.items():
        low, middle, high = numpy.percentile(values, [25, 50, 75])
        spread = (high - low) / middle
        if spread > _NOISE:
            warnings.append(
                f"{name}: the middle half of the samples spreads over {spread:.0%} of the median; "
                "stop other programs, pin this one to idle cores (taskset), or take more rounds"
            )
    return warnings


def warn_of_drift(samples: Mapping[str, Sequence[float]]) -> list[str]:
    """The clock frequency or the temperature changed: samples by method, in the order they were taken."""
    warnings = []
    for name, values in samples.items():
        third = len(values) // 3
        if third == 0:
            continue
        change = float(numpy.median(values[-third:]) / numpy.median(values[:third])) - 1.0
        if abs(change) > _DRIFT and kendalltau(range(len(values)), values).pvalue < _CHANCE:
            warnings.append(
                f"{name}: the samples drifted by {change:+.0%} from the first third to the last; "
                "let the machine reach its steady temperature, or fix its clock (cpupower, nvidia-smi -lgc)"
            )
    return warnings


def warn_of_subnormals(x: Operands) -> list[str]:
    """Arithmetic on subnormal numbers takes a CPU many times as long, so the data decides the latency.

    Subnormals of fp16 are normal numbers of fp32, in which CPUs compute, and cost nothing.
    """
    if x.q.device.type != "cpu" or x.q.dtype == torch.float16:
        return []
    shares = {name: _subnormal_share(tensor) for name, tensor in (("q", x.q), ("k", x.k), ("v", x.v))}
    return [
        f"{share:.1%} of {name} is subnormal, which CPUs compute slowly; "
        "scale the inputs, or call torch.set_flush_denormal(True)"
        for name, share in shares.items()
        if share > _SUBNORMAL
    ]


def _subnormal_share(tensor: torch.Tensor) -> float:
    magnitude = tensor.abs()
    subnormal = (magnitude > 0) & (magnitude < torch.finfo(tensor.dtype).smallest_normal)
    return float(subnormal.float().mean()) if tensor.numel() else 0.0

"""Error rules in use elsewhere, as functions of a kernel's tensor x, the fp64 one g and same-dtype eager's l.

A rule returns whether it passes the tensor. Elements that are not finite fail each of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

EPS = {"fp32": 2.0**-23, "fp16": 2.0**-10, "bf16": 2.0**-7}
_RTOL = {"fp32": 1.3e-6, "fp16": 1e-3, "bf16": 1.6e-2}


@dataclass(frozen=True)
class Sample:
    """One tensor of one call, all in fp64; `reductions` are the lengths of the sums behind an element."""

    name: str
    dtype: str
    x: Tensor
    g: Tensor
    l: Tensor  # noqa: E741  # the letter that FlashAttention's tests use for the low-precision result
    reductions: tuple[int, ...]


Rule = Callable[[Sample], bool]


def _largest(error: Tensor) -> float:
    return float(error.abs().max())


def flash_attention(s: Sample) -> bool:
    """max|x - g| <= 2 max|l - g|, 3 for gradients (flash-attention, tests)."""
    return _largest(s.x - s.g) <= (2 if s.name == "out" else 3) * _largest(s.l - s.g)


def pytorch(s: Sample) -> bool:
    """max|x - g| <= max(1e-5, 2 max|l - g|), the fudge factor of most calls (torch, test_transformers)."""
    return _largest(s.x - s.g) <= max(1e-5, 2 * _largest(s.l - s.g))


def assert_close(s: Sample) -> bool:
    """torch.testing.assert_close with its defaults for the dtype, against the rounded right value."""
    return _close(s, 1e-5, _RTOL[s.dtype])


def attention_gym(s: Sample) -> bool:
    """Mean and max error no more than eager's + (sum sqrt(n) eps32 + eps_out) mean|g| and max|g| (attention-gym)."""
    slack = sum(math.sqrt(n) for n in s.reductions) * EPS["fp32"] + EPS[s.dtype]
    error, eager, size = (s.x - s.g).abs(), (s.l - s.g).abs(), s.g.abs()
    by_mean = float(error.mean()) <= float(eager.mean() + slack * size.mean())
    return by_mean and float(error.max()) <= float(eager.max() + slack * size.max())


def flashinfer_bench(s: Sample) -> bool:
    """No element with an absolute and a relative error above 1e-2 (flashinfer-bench)."""
    error = (s.x - s.g).abs()
    return not bool(((error > 1e-2) & (error / s.g.abs().clamp_min(1e-300) > 1e-2)).any())


def cudnn(s: Sample) -> bool:
    """atol 2e-2, rtol 2e-2 (cuDNN's frontend tests)."""
    return _close(s, 2e-2, 2e-2)


def tritonbench(s: Sample) -> bool:
    """atol 1e-2, rtol 2e-2 (tritonbench)."""
    return _close(s, 1e-2, 2e-2)


def cosine(s: Sample) -> bool:
    """Cosine similarity of 0.999 and relative L1 of 0.05; SageAttention reports both and states no threshold."""
    similar = float(torch.cosine_similarity(s.x.flatten(), s.g.flatten(), 0)) >= 0.999 or not bool(s.g.any())
    return similar and float((s.x - s.g).abs().sum()) <= 0.05 * float(s.g.abs().sum()) + 1e-6


def _close(s: Sample, atol: float, rtol: float) -> bool:
    return bool(((s.x - s.g).abs() <= atol + rtol * s.g.abs()).all())


OTHER_RULES: dict[str, Rule] = {
    "FlashAttention": flash_attention,
    "PyTorch tests": pytorch,
    "assert_close": assert_close,
    "attention-gym": attention_gym,
    "flashinfer-bench": flashinfer_bench,
    "cuDNN": cudnn,
    "tritonbench": tritonbench,
    "cosine and L1": cosine,
}

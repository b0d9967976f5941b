"""Hypotheses about faults; importing this package registers them all."""

from __future__ import annotations

from precision.checking.faults import gradient_stages, gradients, heads, keys, layouts, masks, scales, softmax, stages
from precision.checking.faults.fault import HYPOTHESES, Evidence

__all__ = [
    "HYPOTHESES",
    "Evidence",
    "gradient_stages",
    "gradients",
    "heads",
    "keys",
    "layouts",
    "masks",
    "scales",
    "softmax",
    "stages",
]

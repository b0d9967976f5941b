"""Incoherent processing: an orthogonal rotation of q and k that spreads an outlier over all components."""

from __future__ import annotations

import math

import torch
from scipy.linalg import hadamard
from torch import Tensor


def random_hadamard(width: int, seed: int, device: torch.device) -> Tensor:
    """(width, width), orthogonal: random signs, then a Hadamard matrix (Shah et al., FlashAttention-3, 2024, 3.3).

    The width is a power of two.
    """
    signs = torch.randint(0, 2, (width,), generator=torch.Generator().manual_seed(seed)) * 2.0 - 1.0
    matrix = torch.from_numpy(hadamard(width)).double() / math.sqrt(width)
    return (signs[:, None] * matrix).to(device)

"""Vectors of logits for the experiment of Blanchard, Higham & Higham: drawn, or from a file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from precision.errors import UsageError
from precision.experiments.draws import generator

LENGTH, COUNT = 10, 2500  # of their vectors: the logits of a classifier of ten digits
# N(0, STD^2): the standard deviation for which the law of the largest of ten gives their share, 475 in 2500.
STD = 5.44


def draw_vectors(seed: int) -> Tensor:
    """(2500, 10) in float64."""
    return STD * torch.randn(COUNT, LENGTH, generator=generator(seed), dtype=torch.float64)


def read_vectors(file: str) -> Tensor:
    """(vectors, n) in float64 from a .npy file or from text, one vector a line, separated by blanks or commas.

    Raises UsageError when the file cannot be read or holds anything but finite vectors of one length.
    """
    path = Path(file)
    try:
        read = np.load(path) if path.suffix == ".npy" else np.array([*map(_numbers, path.read_text().splitlines())])
        vectors = torch.from_numpy(np.ascontiguousarray(read, dtype=np.float64))
    except (OSError, ValueError) as error:
        raise UsageError(f"{file!r} holds no vectors: {error}; give one vector a line, or a .npy file") from None
    if vectors.dim() != 2 or vectors.numel() == 0 or not vectors.isfinite().all():
        raise UsageError(
            f"{file!r} holds an array of shape {tuple(vectors.shape)}; it must be (vectors, n), all finite"
        )
    return vectors


def _numbers(line: str) -> list[float]:
    return [float(word) for word in line.replace(",", " ").split()]

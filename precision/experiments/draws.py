"""Draws of q and k for experiments, from the package's distributions."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from precision.inputs.distribution import Drawn, distributions
from precision.inputs.own_call import OwnCall
from precision.problem import Shape

_QUERIES = 64  # of each set of keys: enough to share the cost of drawing them, few enough for many sets


def generator(seed: int) -> Generator:
    """A stream of its own for every seed."""
    return torch.Generator().manual_seed(seed)


def draw_rows(
    d_k: int, rows: int, seed: int, *, keys: int = 64, heads: int = 1, inputs: str = "normal"
) -> tuple[Drawn, Generator]:
    """q (B, H, 64, d_k), k (B, H, keys, d_k) with at least `rows` rows for each head; and the generator, to go on."""
    stream = generator(seed)
    shape = Shape(-(-rows // _QUERIES), heads, heads, _QUERIES, keys, d_k, 1)
    return _draw(inputs, shape, stream), stream


def draw_products(d_k: int, pairs: int, seed: int, *, inputs: str = "normal") -> Tensor:
    """q.k of `pairs` independent pairs, (pairs,)."""
    shape = Shape(1, 1, 1, pairs, pairs, d_k, 1)
    q, k, _ = _draw(inputs, shape, generator(seed))
    return (q * k).sum(-1).flatten()


def _draw(inputs: str, shape: Shape, stream: Generator) -> Drawn:
    distribution = distributions.build(inputs)
    assert not isinstance(distribution, OwnCall)  # an experiment chooses its shape
    return distribution.draw(shape, stream)

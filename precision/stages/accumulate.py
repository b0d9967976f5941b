"""Sums and products whose accumulator is rounded after every chunk of terms."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

Round = Callable[[Tensor], Tensor]


def add_product(start: Tensor | None, a: Tensor, b: Tensor, chunk: int, round_: Round) -> Tensor:
    """start + a @ b, (rows, columns), for a (rows, n) and b (n, columns), rounded after every `chunk` of the n terms.

    `start` None is 0, and `chunk` 0 rounds once.
    """
    total = start
    for terms in _chunks(a.shape[1], chunk):
        product = (a[:, terms], b[terms])
        total = round_(torch.mm(*product) if total is None else torch.addmm(total, *product))
    assert total is not None  # there is at least one chunk
    return total


def add_sum(start: Tensor | None, terms: Tensor, chunk: int, round_: Round) -> Tensor:
    """start + the sum over the n columns of terms (rows, n), as (rows, 1), rounded after every `chunk` of them."""
    total = start
    for columns in _chunks(terms.shape[1], chunk):
        part = terms[:, columns].sum(-1, keepdim=True)
        total = round_(part if total is None else total + part)
    assert total is not None
    return total


def _chunks(count: int, chunk: int) -> Iterator[slice]:
    size = chunk or max(count, 1)
    for begin in range(0, max(count, 1), size):
        yield slice(begin, min(begin + size, count))

"""Two tasks for one attention head: look up the one right token, and average over several."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Generator, Tensor

VALUES = 8  # what a token can carry
CONTEXT = 16  # tokens that a query sees

Task = Literal["recall", "pool"]


class Batch(NamedTuple):
    """Token keys (R, B, n), what they carry (R, B, n), the query's key (R, B), and the right answer (R, B, VALUES)."""

    keys: Tensor
    values: Tensor
    query: Tensor
    target: Tensor


@dataclass(frozen=True)
class Stream:
    """Batches of a task for R independent replicates.

    `recall`: the keys of a context are distinct, and the answer is what the token with the query's key carries
    (associative recall, as Ba et al., "Using fast weights to attend to the recent past", 2016, pose it).
    `pool`: few keys, many tokens to each; the answer is the distribution of what the matching tokens carry.
    """

    task: Task
    replicates: int
    size: int = 64

    @property
    def keys(self) -> int:
        """How many keys there are."""
        return 32 if self.task == "recall" else 4

    def draw(self, generator: Generator) -> Batch:
        """The next batch."""
        shape = (self.replicates, self.size)
        if self.task == "recall":
            keys = torch.rand(*shape, self.keys, generator=generator).argsort(-1)[..., :CONTEXT]
        else:
            keys = torch.randint(self.keys, (*shape, CONTEXT), generator=generator)
        values = torch.randint(VALUES, (*shape, CONTEXT), generator=generator)
        query = keys[..., 0]  # of a token that is there; its place tells nothing, for the model sees no places
        matches = (keys == query[..., None]).float()
        target = torch.zeros(*shape, VALUES).scatter_add(-1, values, matches / matches.sum(-1, keepdim=True))
        return Batch(keys, values, query, target)

"""Faults of heads and batches: which key head a query head uses, and which sequence."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from precision.checking.faults.fault import Evidence, Prediction, hypothesis


@hypothesis()
def wrong_head(evidence: Evidence) -> Iterator[Prediction]:
    """The key head of a query head; only out is compared, since gradients have the shape of the operands."""
    x = evidence.x
    if evidence.tensor != "out":
        return
    q_heads, kv_heads = x.q.shape[1], x.k.shape[1]
    head = torch.arange(q_heads, device=x.q.device)
    maps = {"every query head uses the last key head": torch.full_like(head, kv_heads - 1)}
    maps["every query head uses the first key head"] = torch.zeros_like(head)
    maps["the heads of k and v are reversed"] = (head // (q_heads // kv_heads)).flip(0)
    if x.enable_gqa:
        maps["query head h uses key head h % kv_heads instead of h // group"] = head % kv_heads
    for sentence, mapped in maps.items():
        yield sentence, evidence.under(replace(x, k=x.k[:, mapped], v=x.v[:, mapped]))
    yield "the output's heads are reversed", evidence.right.flip(1)


@hypothesis()
def wrong_sequence(evidence: Evidence) -> Iterator[Prediction]:
    """Another sequence of the batch."""
    x = evidence.x
    if evidence.tensor != "out" or x.q.shape[0] == 1:
        return
    yield (
        "every sequence uses the first one's k and v",
        evidence.under(replace(x, k=x.k[:1].expand_as(x.k), v=x.v[:1].expand_as(x.v))),
    )
    yield "every sequence uses the first one's q", evidence.under(replace(x, q=x.q[:1].expand_as(x.q)))
    yield "the order of the batch is reversed", evidence.right.flip(0)

"""What is subtracted from the scores of each tile of keys."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from precision.stages.plan import Plan


def tile_count(keys: int, block: int) -> int:
    """Tiles of `block` keys, 0 for one tile of all."""
    return math.ceil(keys / block) if block else 1


def subtracted(logits: Tensor, plan: Plan) -> Tensor:
    """(rows, tiles) for logits (rows, keys): the maximum that each tile's exponentials are taken against.

    `stale` moves the maximum only when it would grow by more than plan.stale powers of two (Zadouri et al.,
    "FlashAttention-4", 2026, where that is 8).
    """
    tiles = tile_count(logits.shape[1], plan.block)
    if plan.max == "none":
        return logits.new_zeros(logits.shape[0], tiles)
    if plan.max == "exact":
        return logits.amax(-1, keepdim=True).expand(-1, tiles)
    largest = torch.stack([tile.amax(-1) for tile in torch.split(logits, plan.block or logits.shape[1], -1)], -1)
    if plan.max == "online":
        return largest.cummax(-1).values
    slack = plan.stale * math.log(2.0)
    used = largest[:, 0]
    kept = [used]
    for tile in largest.unbind(-1)[1:]:
        used = torch.where(tile - used > slack, tile, used)
        kept.append(used)
    return torch.stack(kept, -1)

"""From the operands of a call to what the plan stores of them, and to the factors of the scores."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from torch import Tensor

from precision.errors import UsageError
from precision.formats import FORMATS
from precision.numerics.scores import RowBlock, Scores
from precision.operands import Operands
from precision.stages.plan import Plan
from precision.stages.rotation import random_hadamard
from precision.stages.rounder import Rounder

# Scores of one block of rows: several copies of it stay in a CPU's cache; a GPU wants larger launches.
_SCORES = {"cpu": 2**19}
_SCORES_ELSEWHERE = 2**25


def format_of(x: Operands) -> str:
    """The name of the format that the operands are in; raises UsageError when it is none of FORMATS."""
    name = str(x.q.dtype).removeprefix("torch.")
    for format in FORMATS.values():
        if format.torch_name == name:
            return format.name
    raise UsageError(f"q is {name}; convert it to {', '.join(format.torch_name for format in FORMATS.values())}")


def reason_against(plan: Plan, x: Operands) -> str | None:
    """Why the plan cannot compute this call; None when it can."""
    if x.k.shape[2] == 0:
        return "kv_len is 0 and a softmax needs a key"
    width = x.q.shape[-1]
    if plan.rotate and width & (width - 1):
        return f"the rotation is a Hadamard matrix whose width is a power of two, and d_k is {width}"
    return None


@dataclass(frozen=True)
class Prepared:
    """What the plan made of the operands before the first score: all in float64."""

    stored: Operands  # q, k and v as stored, rotated where the plan rotates
    scores: Scores  # over q and k times their share of the scale
    scale: float  # what is left for the scores themselves
    rotation: Tensor | None  # (d_k, d_k)

    def row_blocks(self, multiple: int = 1) -> Iterator[RowBlock]:
        """Every query row once, in blocks of a multiple of `multiple` rows (but for a head's last)."""
        batch, heads, length, _ = self.stored.q.shape
        budget = _SCORES.get(self.stored.q.device.type, _SCORES_ELSEWHERE)
        rows = max(budget // self.stored.k.shape[2] // multiple, 1) * multiple
        for b in range(batch):
            for h in range(heads):
                for start in range(0, length, rows):
                    yield RowBlock(b, h, slice(start, min(start + rows, length)))


def prepare(plan: Plan, x: Operands, rounder: Rounder) -> Prepared:
    """Store the operands and apply the scale where the plan wants it before the product.

    Raises UsageError when there is no key, or the plan's rotation does not fit the width of the heads.
    """
    if (reason := reason_against(plan, x)) is not None:
        raise UsageError(reason)
    q, k, v = x.q.double(), x.k.double(), x.v.double()
    rotation = random_hadamard(q.shape[-1], plan.seed, q.device) if plan.rotate else None
    if rotation is not None:
        q, k = q @ rotation, k @ rotation
    stored = replace(x, q=rounder("q", q), k=rounder("k", k), v=rounder("v", v))
    scale = x.scale_value
    if plan.scale == "after":
        return Prepared(stored, Scores(stored), scale, rotation)
    if plan.scale == "before":
        factors = replace(stored, q=rounder("scaled", stored.q * scale))
    else:
        root = math.sqrt(abs(scale))
        q = rounder("scaled", stored.q * math.copysign(root, scale))
        factors = replace(stored, q=q, k=rounder("scaled", stored.k * root))
    return Prepared(stored, Scores(factors), 1.0, rotation)

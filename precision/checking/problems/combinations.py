"""Features in combination: a kernel often takes another path where two of them meet.

Every two values of two axes below meet in every dtype. Each dtype has rows of its own, so that a check in three of
them meets most triples, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Generator, Tensor

from precision.checking.problems.layouts import LAYOUTS
from precision.checking.problems.pairs import Row, cover_pairs
from precision.checking.problems.problem import CheckProblem, draw_normal, normal
from precision.formats import Format
from precision.operands import Operands
from precision.problem import Shape

_MOST_SCORES, _MOST_ELEMENTS = 120_000, 1_200_000


def _bool(shape: Shape, generator: Generator) -> Tensor:
    """(B, H, L, S), seven keys in ten."""
    return torch.rand(shape.batch, shape.q_heads, shape.q_len, shape.kv_len, generator=generator) < 0.7


def _sparse(shape: Shape, generator: Generator) -> Tensor:
    """(B, H, L, S), for each query its own blocks of 16 keys, one in six: most tiles are empty for most rows."""
    blocks = (shape.batch, shape.q_heads, shape.q_len, -(-shape.kv_len // 16))
    kept = torch.rand(blocks, generator=generator) < 1 / 6
    return kept.repeat_interleave(16, -1)[..., : shape.kv_len]


def _window(shape: Shape, generator: Generator) -> Tensor:
    """(L, S), the 40 keys up to a query's own place."""
    behind = torch.arange(shape.q_len)[:, None] - torch.arange(shape.kv_len)
    return (behind >= 0) & (behind < 40)


def _lengths(shape: Shape, generator: Generator) -> Tensor:
    """(B, 1, 1, S), sequences of unlike length."""
    length = torch.randint(1, shape.kv_len + 1, (shape.batch, 1, 1, 1), generator=generator)
    return torch.arange(shape.kv_len) < length


def _lengths_from_the_end(shape: Shape, generator: Generator) -> Tensor:
    """(B, 1, 1, S), the same with the padding in front."""
    return _lengths(shape, generator).flip(-1)


_MASKS: dict[str, Callable[[Shape, Generator], Tensor]] = {
    "bool": _bool,
    "sparse": _sparse,
    "window": _window,
    "padding": _lengths,
    "left padding": _lengths_from_the_end,
}


@dataclass(frozen=True)
class Combination:
    """One value of each axis."""

    mask: str
    logits: str
    scale: float | None
    heads: tuple[int, int]  # of q, and of k and v
    q_len: int
    kv_len: int
    width: tuple[int, int]  # d_k, d_v
    batch: int
    layout: str

    def problem(self, dtype: str, number: int) -> CheckProblem:
        """The problem in which they meet."""
        said = [f"mask {self.mask}", f"logits {self.logits}", f"layout {self.layout}"]
        if self.scale is not None:
            said.append(f"scale {self.scale}")
        return CheckProblem(
            f"pairs-{dtype}-{number}",
            f"features in combination: {', '.join(said)}",
            Shape(self.batch, *self.heads, self.q_len, self.kv_len, *self.width),
            self._draw,
            layout=LAYOUTS[self.layout],
            dtypes=(dtype,),
            one_input=True,
        )

    def _draw(self, shape: Shape, generator: Generator, format: Format) -> Operands:
        x = self._spread(replace(draw_normal(shape, generator, format), scale=self.scale))
        if self.mask == "causal":
            return replace(x, is_causal=True)
        if self.mask == "additive":
            size = (shape.batch, shape.q_heads, shape.q_len, shape.kv_len)
            return replace(x, attn_mask=2 * normal(*size, generator=generator))
        if self.mask in _MASKS:
            kept = _MASKS[self.mask](shape, generator).clone()
            kept[..., 0] |= ~kept.any(-1)  # every row sees a key
            return replace(x, attn_mask=kept)
        return x

    def _spread(self, x: Operands) -> Operands:
        """Logits of N(0, 1); of N(0, 8^2); or on top of a rise by 12 along the keys."""
        unit = 1 / (x.scale_value * math.sqrt(x.q.shape[-1]))
        x = replace(x, q=unit * x.q)
        if self.logits == "large":
            return replace(x, q=8 * x.q)
        if self.logits == "rising":
            rise = torch.linspace(0, 12, x.k.shape[2], dtype=torch.float64)
            q, k = x.q.clone(), x.k.clone()
            q[..., 0], k[..., 0] = 4.0, rise / (4.0 * x.scale_value)
            return replace(x, q=q, k=k)
        return x


AXES = {
    "mask": ("none", "causal", "additive", *_MASKS),
    "logits": ("normal", "large", "rising"),
    "scale": (None, 0.4),
    "heads": ((1, 1), (4, 1), (6, 2), (14, 2), (33, 33)),
    "q_len": (1, 16, 67, 200),
    "kv_len": (1, 16, 67, 130, 547),
    "width": ((32, 32), (40, 24), (128, 128), (72, 200)),
    "batch": (1, 3),
    "layout": tuple(LAYOUTS),
}


def _is_small(row: Row) -> bool:
    """Scores, and elements of q and out, or of k and v: a check takes less than a minute."""
    (q_heads, kv_heads), width = row["heads"], sum(row["width"])
    queries, keys = row["batch"] * q_heads * row["q_len"], row["batch"] * kv_heads * row["kv_len"]
    return bool(queries * row["kv_len"] <= _MOST_SCORES and max(queries, keys) * width <= _MOST_ELEMENTS)


PROBLEMS = [
    Combination(**row).problem(dtype, number)
    for seed, dtype in enumerate(("fp64", "fp32", "fp16", "bf16"))
    for number, row in enumerate(cover_pairs(AXES, seed, _is_small), 1)
]

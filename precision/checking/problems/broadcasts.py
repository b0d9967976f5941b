"""Masks of every broadcast where B = H = L = S: no size tells the axes apart, only the number of dimensions."""

from __future__ import annotations

from dataclasses import replace

from torch import Generator

from precision.checking.problems.problem import CheckProblem, Draw, draw_normal, normal
from precision.formats import Format
from precision.operands import Operands
from precision.problem import Shape

# The axes of (B, H, L, S) that a mask has; the others are of size 1, and absent before the first one that counts.
_AXES = {"2d": "LS", "3d": "HLS", "batch": "B1LS", "heads": "1HLS", "keys": "B11S", "head-keys": "1H1S", "full": "BHLS"}


def _masked(axes: str, boolean: bool) -> Draw:
    def draw(shape: Shape, generator: Generator, format: Format) -> Operands:
        x = draw_normal(shape, generator, format)
        sizes = {"B": shape.batch, "H": shape.q_heads, "L": shape.q_len, "S": shape.kv_len, "1": 1}
        bias = 2 * normal(*(sizes[axis] for axis in axes), generator=generator)
        kept = bias < 1.0
        kept[..., 0] = True  # every row sees a key
        return replace(x, attn_mask=kept if boolean else bias)

    return draw


def _problem(name: str, axes: str, *, boolean: bool) -> CheckProblem:
    kind = "bool" if boolean else "additive"
    purpose = f"a mask ({', '.join(axes)}) where all sizes are the same"
    return CheckProblem(f"same-{kind}-{name}", purpose, Shape(5, 5, 5, 5, 5, 16, 16), _masked(axes, boolean))


PROBLEMS = [_problem(name, axes, boolean=boolean) for name, axes in _AXES.items() for boolean in (True, False)]

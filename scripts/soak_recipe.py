"""Random calls of attention as lines of Python: what a soak runs is what it prints."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any

import torch

from precision.checking.problems import Call, CheckProblem
from precision.numerics.rounding import round_to
from precision.operands import Operands
from precision.problem import Shape

_IMPORTS = """\
import torch
import precision
from precision.backends.backend import backends
from precision.inputs.distribution import distributions
from precision.numerics.rounding import round_to
from precision.operands import Operands
from precision.problem import Shape
"""
_INPUTS = (
    *("normal",) * 6, "large[std=2.0]", "large[std=4.0]", "large[std=8.0]", "large[std=16.0]", "large[std=100.0]",
    "offset[mean=10.0]", "offset[mean=30.0]", "outlier", "aligned", "qk_norm", "qk_norm[norm=l2]",
    "rope", "quantised_k", "asymmetric",
)  # fmt: skip
MASKS = {
    "none": "None",
    "causal": "None",
    "bool": "torch.rand(B, H, L, S, generator=g) < 0.7",
    "bool of all heads": "torch.rand(L, S, generator=g) < 0.7",
    "bool of each sequence": "(torch.arange(S) < S - torch.arange(B)[:, None])[:, None, None]",
    "rows without a key": "(torch.arange(L) % 3 > 0)[:, None].expand(L, S)",
    "additive": "round_to(torch.randn(B, H, L, S, generator=g, dtype=torch.float64), {dtype!r})",
    "additive of all heads": "round_to(torch.randn(L, S, generator=g, dtype=torch.float64), {dtype!r})",
    "additive of each head": "round_to(torch.randn(1, H, 1, S, generator=g, dtype=torch.float64), {dtype!r})",
    "additive, expanded": "round_to(torch.randn(1, 1, 1, S, generator=g, dtype=torch.float64), {dtype!r})"
    ".expand(B, H, L, S)",
    "additive with -inf": "torch.zeros(B, 1, L, S, dtype=q.dtype).masked_fill("
    "torch.rand(B, 1, L, S, generator=g) < 0.3, -torch.inf)",
    "additive with the lowest number": "torch.zeros(L, S, dtype=q.dtype).masked_fill("
    "torch.rand(L, S, generator=g) < 0.3, torch.finfo(q.dtype).min)",
}
LAYOUTS = {
    "contiguous": "",
    "heads inside": "q, k, v = (t.transpose(1, 2).contiguous().transpose(1, 2) for t in (q, k, v))",
    "transposed": "q, k, v = (t.mT.contiguous().mT for t in (q, k, v))",
    "cut out": "q, k, v = (torch.nn.functional.pad(t, (1, 2, 3, 1))[..., 3:-1, 1:-2] for t in (q, k, v))",
    "every other element": "q, k, v = (torch.stack((t, t), -1).flatten(-2)[..., ::2] for t in (q, k, v))",
    "one sequence expanded": "q, k, v = (t[:1].expand(t.shape) for t in (q, k, v))",
    "one key head expanded": "k, v = (t[:, :1].expand(t.shape) for t in (k, v))",
}
POISONS = {
    "none": "",
    "a NaN in q": "q[0, 0, -1, 0] = torch.nan",
    "a NaN in k": "k[0, 0, -1, 0] = torch.nan",
    "a NaN in v": "v[0, 0, -1, 0] = torch.nan",
    "an infinity in q": "q[0, 0, -1, 0] = torch.inf",
    "an infinity in k": "k[0, 0, -1, 0] = -torch.inf",
    "an infinity in v": "v[0, 0, -1, 0] = torch.inf",
}
_HEADS = ((1, 1), (2, 2), (3, 3), (4, 2), (6, 2), (4, 1), (5, 1), (8, 8))
_LENGTHS = (
    1,
    2,
    3,
    5,
    7,
    8,
    15,
    16,
    17,
    31,
    32,
    33,
    47,
    63,
    64,
    65,
    113,
    127,
    128,
    129,
    203,
    255,
    256,
    257,
    511,
    513,
    1031,
)
_WIDTHS = (1, 2, 3, 4, 5, 7, 8, 12, 16, 24, 31, 32, 33, 48, 64, 65, 80, 96, 128, 160, 192, 256)
_SCALES = (*(None,) * 6, 1.0, 0.3, 0.0, -0.5, 1e-3, 8.0)
_MOST_PAIRS = 2**18


@dataclass(frozen=True)
class Recipe:
    """How a call is made. Every field is a simple value, so that a recipe can be made simpler field by field."""

    shape: Shape
    dtype: str
    inputs: str = "normal"
    mask: str = "none"
    scale: float | None = None
    layout: str = "contiguous"
    poison: str = "none"
    seed: int = 0

    @property
    def lines(self) -> str:
        """Python that makes the operands `x`."""
        s = self.shape
        shape = f"{s.batch}, {s.q_heads}, {s.kv_heads}, {s.q_len}, {s.kv_len}, {s.d_k}, {s.d_v}"
        mask = MASKS[self.mask].format(dtype=self.dtype)
        lines = (
            f"g = torch.Generator().manual_seed({self.seed})",
            f'drawn = distributions.build("{self.inputs}").draw(Shape({shape}), g)',
            f'q, k, v = (round_to(t, "{self.dtype}") for t in drawn)',
            POISONS[self.poison],
            LAYOUTS[self.layout],
            "(B, H, L, _), S = q.shape, k.shape[2]" if "(" in mask else "",
            f"x = Operands(q, k, v, {mask}, is_causal={self.mask == 'causal'}, scale={self.scale})",
        )
        return "\n".join(line for line in lines if line)

    def operands(self) -> Operands:
        """What the lines make."""
        made: dict[str, Any] = {}
        exec(f"{_IMPORTS}{self.lines}", made)
        x = made["x"]
        assert isinstance(x, Operands)
        return x

    def reproduction(self, backend: str, tensor: str) -> str:
        """A script that shows how far a backend is from fp64 attention."""
        if tensor == "out":
            return f"""{_IMPORTS}
{self.lines}
with backends.build("{backend}").prepare(x) as attend:
    out = attend()
right = precision.reference(x.q, x.k, x.v, **x.keywords).out
print((out - right).abs().max(), out.isfinite().all(), right.isfinite().all())
"""
        return f"""{_IMPORTS}from precision.backends.gradient import prepare_gradients

{self.lines}
g = torch.Generator().manual_seed({self.seed})
do = round_to(torch.randn(*x.q.shape[:3], x.v.shape[-1], generator=g, dtype=torch.float64), "{self.dtype}")
with prepare_gradients(backends.build("{backend}"), x, do) as differentiate:
    found = differentiate()
right = precision.reference(x.q, x.k, x.v, **x.keywords).backward(do)
for name in ("dq", "dk", "dv"):
    print(name, (getattr(found, name) - getattr(right, name)).abs().max())
"""


@dataclass(frozen=True)
class RandomProblem(CheckProblem):
    """A recipe as a problem of the check: another seed draws other numbers of the same kind."""

    recipe: Recipe | None = None

    def make(self, dtype: str, seed: int, device: torch.device) -> Call:
        assert self.recipe is not None
        recipe = replace(self.recipe, seed=self.recipe.seed + seed)
        x = recipe.operands()
        generator = torch.Generator().manual_seed(recipe.seed)
        do = torch.randn(*x.q.shape[:3], x.v.shape[-1], generator=generator, dtype=torch.float64)
        return Call(x, round_to(do, dtype))

    def resized(self, shape: Shape) -> RandomProblem:
        assert self.recipe is not None
        return replace(self, shape=shape, recipe=replace(self.recipe, shape=shape))


def draw_recipe(number: int) -> Recipe:
    """The recipe of that number; the same one every time."""
    chance = random.Random(number)
    while True:
        q_heads, kv_heads = chance.choice(_HEADS)
        q_len, kv_len = chance.choice(_LENGTHS), chance.choice(_LENGTHS)
        d_k = chance.choice(_WIDTHS)
        d_v = chance.choice(_WIDTHS) if chance.random() < 0.2 else d_k
        shape = Shape(chance.choice((1, 1, 2, 3)), q_heads, kv_heads, q_len, kv_len, d_k, d_v)
        if shape.batch * q_heads * q_len * kv_len <= _MOST_PAIRS:
            break
    return Recipe(
        shape,
        chance.choice(("fp32", "fp16", "bf16", "fp16", "bf16", "fp64")),
        chance.choice(_INPUTS),
        chance.choice(list(MASKS)),
        chance.choice(_SCALES),
        chance.choice([*LAYOUTS, "contiguous", "contiguous"]),
        chance.choice(list(POISONS)) if chance.random() < 0.1 else "none",
        number,
    )


def simpler(recipe: Recipe) -> list[Recipe]:
    """The same recipe with one thing less in it."""
    plain = Recipe(recipe.shape, recipe.dtype, seed=recipe.seed)
    names = ("poison", "layout", "mask", "scale", "inputs")
    changed = [replace(recipe, **{name: getattr(plain, name)}) for name in names]
    return [each for each in changed if each != recipe]

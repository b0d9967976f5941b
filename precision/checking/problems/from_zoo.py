"""The zoo as problems: failures that people meet. Missing the right value there is a limit, not a fault of the kernel.

A case that is added to the zoo is a problem of every check.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from precision.checking.problems.problem import Call, CheckProblem, draw_normal
from precision.numerics.rounding import round_to
from precision.problem import Shape
from precision.zoo.case import ZooCase, zoo

# In words, where the name of the case does not say it.
_WHERE = {
    "nan-lost": "where a query is NaN",
    "masked-row": "where a row is fully masked",
    "scale-order": "where |q.k| exceeds the largest number before the scale",
    "scores-overflow": "where |q.k| exceeds 65504 before the scale",
    "reduced-flag": "where |q.k| exceeds 65504 after the scale, too",
    "silent-zero": "where every logit is beyond the format",
    "weights-underflow": "where weights are too small for the format",
    "empty": "where there is no key",
    "finfo-min": "where a row of the mask is the lowest finite number",
    "causal-scale": "where the scale is 0 or below and the mask causal",
    "padding-nan": "where a masked key is NaN",
}

_MAY_BE_REFUSED = ("mask-dtype",)


@dataclass(frozen=True)
class ZooProblem(CheckProblem):
    """A case of the zoo; every seed gives the same operands, and another do."""

    case: ZooCase | None = None

    def make(self, dtype: str, seed: int, device: torch.device) -> Call:
        assert self.case is not None
        x = self.case.operands(dtype)
        do = torch.randn(*x.q.shape[:3], x.v.shape[-1], generator=torch.Generator().manual_seed(seed)).double()
        return Call(x, round_to(do, dtype)).to(device)


def zoo_problems() -> list[ZooProblem]:
    """Every case of the zoo with its default options."""
    return [_problem(name, cls()) for name, cls in zoo.items()]


def _problem(name: str, case: ZooCase) -> ZooProblem:
    where = f"{_WHERE[name]}, zoo case {name}" if name in _WHERE else f"in the zoo case {name}"
    shape = _shape_of(case)
    return ZooProblem(
        f"zoo-{name}",
        (type(case).__doc__ or "").partition("\n")[0],
        shape,
        draw_normal,
        beyond=where,
        may_be_refused=name in _MAY_BE_REFUSED,
        few_roundings=True,
        backward=name == "masked-row",
        dtypes=case.dtypes,
        case=case,
    )


def _shape_of(case: ZooCase) -> Shape:
    x = case.operands(case.dtypes[0])
    batch, q_heads, q_len, d_k = x.q.shape
    return Shape(batch, q_heads, x.k.shape[1], q_len, x.k.shape[2], d_k, x.v.shape[3])

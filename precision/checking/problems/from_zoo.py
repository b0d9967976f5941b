"""The zoo as problems: failures that people meet.

A case that is added to the zoo is a problem of every check. It is an ordinary one, on which a wrong value is a fault,
unless `_BEYOND` says what else a kernel may give there and why.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Generator

from precision.checking.problems.problem import Call, CheckProblem, Excuse
from precision.formats import Format
from precision.numerics.rounding import round_to
from precision.operands import Operands
from precision.problem import Shape
from precision.zoo.case import ZooCase, zoo

_OUT = ("out",)
_GRADIENTS = ("dq", "dk", "dv")
_ANY_OUT = Excuse(finite=_OUT, not_finite=_OUT)
_NOT_FINITE = Excuse(not_finite=_OUT)
_FP16_OVERFLOW = Excuse(finite=_OUT, not_finite=_OUT, dtypes=("fp16",))

# Where it is, in words, and what the format's range or torch's own backends excuse. A NaN that is lost and a fully
# masked row that is not 0 are always limits.
_BEYOND = {
    "nan-lost": ("where a query is NaN", _NOT_FINITE),
    "masked-row": ("where a row is fully masked", Excuse(finite=_GRADIENTS, not_finite=_GRADIENTS)),
    "scale-order": ("where |q.k| exceeds the largest number before the scale", _ANY_OUT),
    "scores-overflow": ("where |q.k| exceeds 65504 before the scale", _FP16_OVERFLOW),
    "reduced-flag": ("where |q.k| exceeds 65504 after the scale, too", _FP16_OVERFLOW),
    "silent-zero": ("where every logit is beyond the format", _ANY_OUT),
    "weights-underflow": ("where weights are too small for the format", Excuse(finite=_OUT)),
    "empty": ("where there is no key", Excuse()),
    # The lowest finite number overflows when it is multiplied by log2(e) or a logit is added.
    "finfo-min": ("where a row of the mask is the lowest finite number", _ANY_OUT),
    # torch's FLASH puts -inf in before the scale, and is NaN or finite and wrong.
    "causal-scale": ("where the scale is 0 or below and the mask causal", _ANY_OUT),
    "padding-nan": ("where a masked key is NaN", _NOT_FINITE),
    # Eager, which refuses it, is no yardstick.
    "mask-dtype": ("where the mask has another dtype than q", Excuse()),
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


def _draw_nothing(shape: Shape, generator: Generator, format: Format) -> Operands:
    """A case makes its own operands, in its own shape, whatever the seed."""
    raise NotImplementedError


def zoo_problems() -> list[ZooProblem]:
    """Every case of the zoo with its default options."""
    return [_problem(name, cls()) for name, cls in zoo.items()]


def _problem(name: str, case: ZooCase) -> ZooProblem:
    where, excuse = _BEYOND.get(name, ("", Excuse()))
    return ZooProblem(
        f"zoo-{name}",
        (type(case).__doc__ or "").partition("\n")[0],
        _shape_of(case),
        _draw_nothing,
        beyond=f"{where}, zoo case {name}" if where else "",
        excuse=excuse,
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

"""A plan: what a kernel does with its numbers, stage by stage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from pydantic import Field

from precision.errors import UsageError, nearest
from precision.stages.rounding import Rounding, RoundingText

FORWARD_STAGES: Mapping[str, str] = {
    "q": "q as stored",
    "k": "k as stored",
    "v": "v as stored",
    "s_acc": "accumulator of q.k",
    "s": "scores q.k",
    "scaled": "what was multiplied by the scale",
    "masked": "scaled scores plus an additive mask",
    "m": "maximum of the row so far",
    "shifted": "scores minus the maximum",
    "e": "exponentials",
    "alpha": "factor exp(old maximum - new maximum)",
    "l": "sum of the row's exponentials",
    "weights": "exponentials over their sum",
    "p": "weights as operand of P V",
    "pv_acc": "accumulator of P V",
    "pv": "state of O after each tile",
    "out": "output",
    "lse": "log of the row's sum, for the backward pass",
}
BACKWARD_STAGES: Mapping[str, str] = {
    "do": "gradient of the output as stored",
    "p_grad": "weights as operand of P^T dO",
    "dp": "dO V^T",
    "d": "row sum of dO * O",
    "ds": "P * (dP - D) as operand of the last two products",
    "grad_acc": "accumulator of dq, dk and dv",
    "dq": "dq as written",
    "dk": "dk as written",
    "dv": "dv as written",
}
STAGES: Mapping[str, str] = {**FORWARD_STAGES, **BACKWARD_STAGES}

# Stages of whole tensors, whose rows can share a factor; the others are computed some rows at a time.
_STORED = ("q", "k", "v", "do")

Exponential = Literal["exp", "exp2", "poly", "fast"]  # precision/stages/exponential.py says what each is
Count = Annotated[int, Field(ge=0)]


@dataclass(frozen=True)
class Plan:
    """The rounding of every stage (STAGES says what each is) and the order of the operations; exact by default.

    A field named after a stage is the text of a Rounding. `..._chunk` is how many terms an accumulator takes between
    two roundings, 0 for all of them. Raises UsageError when two options contradict each other.
    """

    q: RoundingText = "fp64"
    k: RoundingText = "fp64"
    v: RoundingText = "fp64"
    s_acc: RoundingText = "fp64"
    s: RoundingText = "fp64"
    scaled: RoundingText = "fp64"
    masked: RoundingText = "fp64"
    m: RoundingText = "fp64"
    shifted: RoundingText = "fp64"
    e: RoundingText = "fp64"
    alpha: RoundingText = "fp64"
    l: RoundingText = "fp64"  # noqa: E741  # its name in the literature
    weights: RoundingText = "fp64"
    p: RoundingText = "fp64"
    pv_acc: RoundingText = "fp64"
    pv: RoundingText = "fp64"
    out: RoundingText = "fp64"
    lse: RoundingText = "fp64"

    do: RoundingText = "fp64"
    p_grad: RoundingText = "fp64"
    dp: RoundingText = "fp64"
    d: RoundingText = "fp64"
    ds: RoundingText = "fp64"
    grad_acc: RoundingText = "fp64"
    dq: RoundingText = "fp64"
    dk: RoundingText = "fp64"
    dv: RoundingText = "fp64"

    s_chunk: Count = 0  # of the d_k terms of a score
    l_chunk: Count = 0  # of the keys of a tile
    pv_chunk: Count = 0  # of the keys of a tile
    dq_chunk: Count = 0  # of the keys
    grad_chunk: Count = 0  # of the queries that dk and dv add up

    rotate: bool = False  # q and k by a random-sign Hadamard matrix, before they are stored
    scale: Literal["after", "before", "both"] = "after"  # on the scores, on q, or its root on q and on k
    max: Literal["exact", "none", "online", "stale"] = "exact"  # subtracted: the row's, none, the one so far
    stale: Annotated[float, Field(ge=0)] = 8.0  # stale: powers of two that scores may exceed the maximum in use by
    block: Count = 0  # keys of a tile, 0 for all
    exp: Exponential = "exp"
    grad_exp: Exponential = "exp"  # of the weights made again in the backward pass
    degree: Annotated[int, Field(ge=1, le=7)] = 3  # of the polynomial of poly
    normalise: Literal["after", "before"] = "after"  # division by the sum, after P V or before
    safe: bool = True  # a row that sees no key gives 0; otherwise 0/0
    seed: int = 0  # of stochastic rounding and of the rotation

    def __post_init__(self) -> None:
        for stage in STAGES:
            if self.rounding(stage).shared_rows is not None and stage not in _STORED:
                raise UsageError(f"{stage} is computed row by row; only {', '.join(_STORED)} take tensor or block")
        if self.normalise == "before" and self.max in ("online", "stale"):
            raise UsageError(f"max={self.max} knows the sum only at the end; it needs normalise=after")

    def rounding(self, stage: str) -> Rounding:
        """How a stage is rounded."""
        return Rounding.parse(getattr(self, stage))

    @property
    def stages(self) -> tuple[str, ...]:
        """The stages that are rounded, in the order of the data path."""
        return tuple(stage for stage in STAGES if not self.rounding(stage).is_exact)

    def rounded(self, rounding: str, *stages: str) -> Plan:
        """The same plan with these stages rounded so; raises UsageError on an unknown stage."""
        for stage in stages:
            if stage not in STAGES:
                raise UsageError(f"unknown stage {stage!r}; {nearest(stage, STAGES)}")
        changes: dict[str, Any] = dict.fromkeys(stages, rounding)
        return replace(self, **changes)

    def without(self, *stages: str) -> Plan:
        """The same plan with these stages exact."""
        return self.rounded("fp64", *stages)

    def only(self, *stages: str) -> Plan:
        """The same plan with every other stage exact."""
        self.without(*stages)  # raises UsageError on an unknown one
        return self.without(*(stage for stage in STAGES if stage not in stages))

    def resolve(self, dtype: str) -> Plan:
        """The same plan for operands of a dtype: `input` and `opmath` replaced by formats."""
        formats: dict[str, Any] = {stage: str(self.rounding(stage).resolve(dtype)) for stage in self.stages}
        return replace(self, **formats)

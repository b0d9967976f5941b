"""Faults of precision in the backward pass alone: P, dS, dO or the log-sum-exp in a narrower format."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from precision.checking.faults.fault import Evidence, Prediction, hypothesis
from precision.checking.faults.formats import narrower_formats, spoken
from precision.formats import FORMATS
from precision.numerics.bounds import Matrices
from precision.numerics.rounding import round_to


@hypothesis(everywhere=True, rounding=True)
def narrow_products(evidence: Evidence) -> Iterator[Prediction]:
    """What goes into the products of the backward pass."""
    if evidence.tensor == "out":
        return
    stages = Matrices(evidence.truth.right, evidence.do)
    ds = stages.ds * evidence.x.scale_value
    q, k = evidence.x.q.double(), stages.k
    for format in narrower_formats(evidence.truth.format):

        def narrow(t: Tensor, format: str = format) -> Tensor:
            return round_to(t, format).double()

        name = spoken(format, evidence.truth.format)
        if evidence.tensor == "dv":
            yield f"P looks rounded to {name}", stages.shared(narrow(stages.p).mT @ stages.do)
            yield f"P and dO look rounded to {name}", stages.shared(narrow(stages.p).mT @ narrow(stages.do))
        if evidence.tensor == "dq":
            yield f"dS looks rounded to {name}", narrow(ds) @ k
            yield f"dS and k look rounded to {name}", narrow(ds) @ narrow(k)
        if evidence.tensor == "dk":
            yield f"dS looks rounded to {name}", stages.shared(narrow(ds).mT @ q)
            yield f"dS and q look rounded to {name}", stages.shared(narrow(ds).mT @ narrow(q))


@hypothesis(everywhere=True)
def narrow_lse(evidence: Evidence) -> Iterator[Prediction]:
    """P = exp(S - lse) from a rounded lse: each row of P, and so of dS, is off by one factor, as if dO were."""
    if evidence.tensor == "out":
        return
    right, own = evidence.truth.right, evidence.truth.format
    lse = right.lse.where(right.lse.isfinite(), 0.0)
    for name in ("fp16", "bf16"):
        if FORMATS[name].significand_bits <= own.significand_bits:
            factor = (lse - round_to(lse, name).double()).exp()[..., None]
            gradient = getattr(right.backward(evidence.do * factor), evidence.tensor)
            yield f"the log-sum-exp for the backward pass looks rounded to {name}", gradient

"""A model served with another scale than it was trained with."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import nan

import torch

from precision.claims.claim import Claim, Judgement, claims, decide
from precision.experiments.draws import generator
from precision.experiments.effort import Effort
from precision.experiments.evidence import Evidence, Value
from precision.experiments.plot import Plot
from precision.inputs.normal import Normal
from precision.numerics.reference import attend
from precision.operands import Operands
from precision.problem import Shape
from precision.scores.scale import resolve_scale

_CHANGE = "relative change of the output"
_SHAPE = Shape(2, 8, 8, 64, 512, 64, 64)
_SERVED = {"1": "none", "√d_k": "sqrt_dk", "d_k": "dk", "√d_model": "sqrt_dmodel"}


@claims.register("train-serve")
@dataclass(frozen=True)
class TrainServe(Claim):
    """A model has to be served with the scale that it was trained with."""

    topic = "practice"
    source = "documentation"
    said = "another output with another scale"
    expected = "confirmed"
    plot = Plot(
        "Trained with √d_k, served with the divisor named: Frobenius norm of the change over that of the output, d_k = "
        "64, 512 keys, 8 heads.",
    )

    def measure(self, effort: Effort) -> Iterable[Value]:
        for seed in effort.seeds:
            q, k, v = Normal().draw(_SHAPE, generator(seed))
            trained = attend(Operands(q, k, v)).out
            for divisor, rule in _SERVED.items():
                served = attend(Operands(q, k, v, scale=resolve_scale(rule, _SHAPE))).out
                change = torch.linalg.vector_norm(served - trained) / torch.linalg.vector_norm(trained)
                yield Value(_CHANGE, f"divisor {divisor}", nan, seed, float(change))

    def judge(self, seen: Evidence) -> Judgement:
        change = seen.settings(_CHANGE)
        others = {name: value for name, value in change.items() if name != "divisor √d_k"}
        grounds = (
            f"The output changes by {', '.join(f'{value:.2f} ({name})' for name, value in others.items())} of its norm."
        )
        return decide(min(others.values()) > 0.1 and change["divisor √d_k"] < 1e-12, grounds)

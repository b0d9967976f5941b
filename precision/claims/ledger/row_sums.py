"""Whether rounded weights still add up to 1."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import nan

import torch

from precision.claims.claim import Claim, Judgement, claims, decide_by_part
from precision.experiments.draws import generator
from precision.experiments.effort import Effort
from precision.experiments.evidence import Evidence, Value
from precision.experiments.plot import Plot
from precision.formats import find_format
from precision.inputs.large import Large
from precision.inputs.make import round_operands
from precision.numerics.rounding import torch_dtype
from precision.operands import Operands
from precision.problem import Shape

_SUM, _FLAT = "largest |sum of weights - 1| over its bound", "sum of weights, all scores 0"
_LENGTHS = (65504, 65536)


@claims.register("still-a-distribution")
@dataclass(frozen=True)
class StillDistribution(Claim):
    """A softmax is normalised by construction, saturated or not: each row sums to 1."""

    topic = "number formats"
    source = "textbook wisdom"
    said = "rows that sum to 1"
    expected = "conditional"
    plot = Plot(
        "The sum of a row's rounded weights against 1, over what rounding allows (dashed: all of it); and one row of "
        "equal scores, whose exponentials add up to the number of keys.",
        marks={_SUM: 1.0},
    )

    def measure(self, effort: Effort) -> Iterable[Value]:
        for dtype in ("fp16", "bf16", "fp32"):
            u = find_format(dtype).unit_roundoff
            for seed in effort.seeds:
                q, k, v = Large(1.0).draw(Shape(1, 1, 1, 512, 1024, 128, 1), generator(seed))
                x = round_operands(Operands(q, k, v), dtype)
                for name, scale in (("unscaled", 1.0), ("scaled", x.scale_value)):
                    weights = _weights(x.q @ x.k.mT * scale).double()
                    # What exp rounds is in the sum too. The sum, added in fp32, is rounded once, each quotient once;
                    # below the normal numbers a rounding is up to half the smallest number.
                    keys = weights.shape[-1]
                    bound = 2 * u + keys * (find_format("fp32").unit_roundoff + find_format(dtype).smallest / 2)
                    error = float((weights.sum(-1) - 1).abs().max())
                    yield Value(_SUM, f"{dtype}, {name}", nan, seed, error / bound)
            for keys in _LENGTHS:
                weights = _weights(torch.zeros(keys, dtype=torch_dtype(dtype)))
                yield Value(_FLAT, f"{dtype}, {keys} keys", nan, 0, float(weights.double().sum()))

    def judge(self, seen: Evidence) -> Judgement:
        worst, flat = max(seen.settings(_SUM).values()), seen.settings(_FLAT)
        parts = {
            "of rows of 1024 keys in every dtype": worst <= 1,
            f"of {_LENGTHS[1]} equal scores in fp16": flat[f"fp16, {_LENGTHS[1]} keys"] > 0.5,
        }
        grounds = (
            f"Up to 1024 keys a sum is off by at most {worst:.2f} of its bound, saturated rows included. When scores "
            f"tie, a row of {_LENGTHS[1]} keys adds up to more than {find_format('fp16').largest:.0f} in fp16, the sum "
            f"is infinite and the weights sum to {flat[f'fp16, {_LENGTHS[1]} keys']:.0f}; subtracting the maximum does "
            f"not help there. In bf16 they sum to {flat[f'bf16, {_LENGTHS[1]} keys']:.3f}."
        )
        return decide_by_part(parts, grounds)


def _weights(scores: torch.Tensor) -> torch.Tensor:
    """The softmax with its maximum subtracted, every operation in the dtype of the scores."""
    weights = (scores - scores.amax(-1, keepdim=True)).exp()
    return weights / weights.sum(-1, keepdim=True)

"""The online softmax against the row-wise one, and what its state must be kept in."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch

from precision.claims.claim import Claim, Effort, Judgement, claims, decide
from precision.claims.draws import generator
from precision.claims.evidence import Evidence, Value
from precision.claims.plot import Plot
from precision.inputs.make import round_operands
from precision.inputs.normal import Normal
from precision.numerics.reference import attend
from precision.operands import Operands
from precision.problem import Shape
from precision.report.show import number
from precision.scores.online_softmax import OnlineSoftmax
from precision.scores.softmax import Softmax

_BLOCKS = (16, 64, 256)
_ERROR = "RMSE over that of row-wise bf16"
_EXACT = "largest difference in fp64, against the row-wise softmax"


@claims.register("streaming")
@dataclass(frozen=True)
class Streaming(Claim):
    """Subtracting a running maximum, block by block, computes the same softmax."""

    topic = "number formats"
    source = "paper"
    said = "equal to rounding, at any block size"
    expected = "confirmed"
    plot = Plot(
        "fp64 with 512 keys; and bf16 inputs, 8192 keys, d = 64, with the state (m, l, O) kept in bf16 or fp32.",
        x="keys in a block",
        log=frozenset({_ERROR, _EXACT}),
    )

    def measure(self, effort: Effort) -> Iterable[Value]:
        for seed in effort.seeds:
            q, k, v = Normal().draw(Shape(1, 2, 2, 64, 512, 64, 64), generator(seed))
            right = Softmax().weights(q, k, 1 / 8) @ v
            for block in _BLOCKS:
                out = OnlineSoftmax(block).attend(q, k, v, 1 / 8)
                yield Value(_EXACT, "fp64 state", block, seed, float((out - right).abs().max()))
            yield from _with_state(effort.size(128, 64), seed)

    def judge(self, seen: Evidence) -> Judgement:
        exact = max(seen.line(_EXACT, "fp64 state").values())
        bf16, fp32 = (seen.line(_ERROR, f"{state} state") for state in ("bf16", "fp32"))
        grounds = (
            f"In fp64 the two differ by {number(exact)} at most; a state in bf16 does not hold it. Its error is "
            f"{bf16[16]:.0f}, {bf16[64]:.1f} and {bf16[256]:.1f} times that of row-wise bf16 with blocks of 16, 64 and "
            f"256; with a state in fp32 it is {max(fp32.values()):.2f} times."
        )
        return decide(exact < 1e-13 and max(fp32.values()) < 1, grounds)


def _with_state(queries: int, seed: int) -> Iterable[Value]:
    q, k, v = Normal().draw(Shape(1, 1, 1, queries, 8192, 64, 64), generator(seed))
    x = round_operands(Operands(q, k, v), "bf16")
    right = attend(x).out

    def error(out: torch.Tensor) -> float:
        return math.sqrt(float((out.double() - right).square().mean()))

    baseline = error(Softmax().weights(x.q, x.k, x.scale_value) @ x.v)
    for state in ("bf16", "fp32"):
        for block in _BLOCKS:
            # Products and exponentials in fp32, as matrix units give them; what is kept between blocks is rounded.
            out = OnlineSoftmax(block, state).attend(x.q.float(), x.k.float(), x.v.float(), x.scale_value)
            yield Value(_ERROR, f"{state} state", block, seed, error(out.bfloat16()) / baseline)

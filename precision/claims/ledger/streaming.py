"""The online softmax against the row-wise one, and what its state must be kept in."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from precision.claims.claim import Claim, Judgement, claims, decide
from precision.experiments.draws import generator
from precision.experiments.effort import Effort
from precision.experiments.evidence import Evidence, Value
from precision.experiments.online_state import BLOCKS, state_errors
from precision.experiments.plot import Plot
from precision.inputs.normal import Normal
from precision.problem import Shape
from precision.report.show import number
from precision.scores.online_softmax import OnlineSoftmax
from precision.scores.softmax import Softmax

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
            for block in BLOCKS:
                out = OnlineSoftmax(block).attend(q, k, v, 1 / 8)
                yield Value(_EXACT, "fp64 state", block, seed, float((out - right).abs().max()))
            for state, keys, ratio in state_errors(effort.size(128, 64), seed):
                yield Value(_ERROR, f"{state} state", keys, seed, ratio)

    def judge(self, seen: Evidence) -> Judgement:
        exact = max(seen.line(_EXACT, "fp64 state").values())
        bf16, fp32 = (seen.line(_ERROR, f"{state} state") for state in ("bf16", "fp32"))
        grounds = (
            f"In fp64 the two differ by {number(exact)} at most; a state in bf16 does not hold it. Its error is "
            f"{bf16[16]:.0f}, {bf16[64]:.1f} and {bf16[256]:.1f} times that of row-wise bf16 with blocks of 16, 64 and "
            f"256; with a state in fp32 it is {max(fp32.values()):.2f} times."
        )
        return decide(exact < 1e-13 and max(fp32.values()) < 1, grounds)

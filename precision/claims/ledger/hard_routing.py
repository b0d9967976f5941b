"""Where the right answer is one-hot: a fixed scale against one that is learned."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import nan

from precision.claims.claim import Claim, Judgement, claims, decide
from precision.claims.training import runs
from precision.claims.training.runs import DIVISORS, Setup, train
from precision.experiments.effort import Effort
from precision.experiments.evidence import Evidence, Value
from precision.experiments.plot import Plot
from precision.report.show import number

_, SCALED, BY_D = DIVISORS
_GAIN = "learned gain of the logits"
_FIXED, _LEARNED = "final loss, fixed scale", "final loss, learned gain"
_D_K = 4


@claims.register("hard-routing")
@dataclass(frozen=True)
class HardRouting(Claim):
    """Where one-hot attention is wanted the scale works against it, and a learned temperature helps."""

    topic = "training"
    source = "textbook wisdom"
    said = "a gain that rises above 1, and a lower loss"
    expected = "confirmed"
    plot = Plot(
        f"Associative recall with Adam; every q and k has unit mean square, d_k = {_D_K}, so that no logit exceeds "
        "sqrt(d_k) and only the gain can sharpen. It starts at 1 (dashed).",
        marks={_GAIN: 1.0},
    )

    def measure(self, effort: Effort) -> Iterable[Value]:
        def setup(learn: bool) -> Setup:
            steps = runs.steps(effort)
            return Setup("recall", "adam", _D_K, steps, runs.seeds(effort), normed=True, learn_temperature=learn)

        learned, fixed = train(setup(True)), train(setup(False))
        tables = {_GAIN: learned.temperature, _FIXED: fixed.loss, _LEARNED: learned.loss}
        for quantity, table in tables.items():
            for divisor, values in learned.by_divisor(table).items():
                for seed, value in enumerate(values):
                    yield Value(quantity, f"divisor {divisor}", nan, seed, value)

    def judge(self, seen: Evidence) -> Judgement:
        gain = seen.at(_GAIN, f"divisor {SCALED}")
        fixed, learned = (seen.mean(name, f"divisor {SCALED}") for name in (_FIXED, _LEARNED))
        grounds = (
            f"From 1 the gain over 1/sqrt(d_k) rises to {gain.mean:.2f} ({gain.low:.2f} to {gain.high:.2f}) and the "
            f"loss falls from {number(fixed)} to {number(learned)}; over 1/d_k it rises to "
            f"{seen.mean(_GAIN, f'divisor {BY_D}'):.2f}."
        )
        return decide(gain.low > 1 and learned < fixed, grounds)

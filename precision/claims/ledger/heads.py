"""What the number of heads has to do with the scale: nothing, for d_k belongs to one head."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import nan

from precision.claims.claim import Claim, Judgement, claims, decide
from precision.claims.products import TOLERANCE
from precision.experiments.draws import draw_rows
from precision.experiments.effort import Effort
from precision.experiments.evidence import Evidence, Value
from precision.experiments.plot import Plot
from precision.presets import find_preset

_RATIO = "variance of q.k / d_k"
_D_K = 64


@claims.register("heads-orthogonal")
@dataclass(frozen=True)
class HeadsOrthogonal(Claim):
    """The number of heads has nothing to do with the scale."""

    topic = "other divisors"
    source = "textbook wisdom"
    said = "variance d_k for any number of heads"
    expected = "confirmed"
    plot = Plot(f"d_k = {_D_K} throughout.", x="heads", marks={_RATIO: 1.0})

    def measure(self, effort: Effort) -> Iterable[Value]:
        for heads in (1, 2, 4, 8, 16, 32, 64):
            for seed in effort.seeds:
                drawn, _ = draw_rows(_D_K, effort.size(16384, 8192) // heads, seed + 100 * heads, heads=heads)
                yield Value(_RATIO, "", heads, seed, float((drawn.q @ drawn.k.mT).var()) / _D_K)

    def judge(self, seen: Evidence) -> Judgement:
        ratios = seen.line(_RATIO).values()
        grounds = f"Variance / d_k is {min(ratios):.3f} to {max(ratios):.3f} for 1 to 64 heads."
        return decide(all(abs(ratio - 1) < TOLERANCE for ratio in ratios), grounds)


# Hidden sizes from the models' published config.json; heads and d_k are those of the presets.
_HIDDEN = {"bert-base": 768, "llama-3-70b": 8192, "mistral-7b": 4096}
_OTHER = "gemma-7b"
_HIDDEN_OTHER = 3072
_WIDTH, _QUOTIENT = "d_k of the model", "hidden size / query heads"


@claims.register("per-head")
@dataclass(frozen=True)
class PerHead(Claim):
    """The d_k of the scale is the width of one head, hidden size over heads, and not d_model."""

    topic = "other divisors"
    source = "documentation"
    said = "768/12 = 64, 8192/64 = 128, 4096/32 = 128"
    expected = "confirmed"
    plot = Plot("The quotient beside the d_k that the model uses.")
    replicates = "one exact value"

    def measure(self, effort: Effort) -> Iterable[Value]:
        for model, hidden in {**_HIDDEN, _OTHER: _HIDDEN_OTHER}.items():
            heads = find_preset(model)
            yield Value(_WIDTH, model, nan, 0, heads.d_k)
            yield Value(_QUOTIENT, model, nan, 0, hidden / heads.q_heads)

    def judge(self, seen: Evidence) -> Judgement:
        width, quotient = seen.settings(_WIDTH), seen.settings(_QUOTIENT)
        equal = ", ".join(f"{model} {quotient[model]:.0f}" for model in _HIDDEN)
        grounds = (
            f"Hidden size over heads: {equal}. It is a habit and no law: {_OTHER} has d_k = {width[_OTHER]:.0f} where "
            f"the quotient is {quotient[_OTHER]:.0f}. What counts is the width of a head."
        )
        return decide(all(width[model] == quotient[model] for model in _HIDDEN), grounds)

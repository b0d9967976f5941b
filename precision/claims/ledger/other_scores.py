"""Attention without a scaled product: does it need a scale?"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from precision.claims.claim import Claim, Judgement, claims, decide, decide_by_part
from precision.experiments.draws import draw_rows
from precision.experiments.effort import Effort
from precision.experiments.evidence import Evidence, Share, Value
from precision.experiments.plot import Plot
from precision.scores.bahdanau import Additive
from precision.scores.linear import Linear
from precision.scores.performer import Performer
from precision.scores.softmax import Softmax
from precision.scores.weighting import Weighting

_LARGEST, _VARIANCE = "largest weight, mean", "variance of the scores"


@claims.register("linear")
@dataclass(frozen=True)
class LinearAttention(Claim):
    """Linear attention has no softmax, so it does not saturate."""

    topic = "other mechanisms"
    source = "paper"
    said = "a largest weight that does not grow with d_k"
    expected = "conditional"
    plot = Plot(
        "64 keys; 1/sqrt(d_k) for both Performers, of which the one with exp features needs it; a uniform weight is "
        "1/64 (dashed).",
        marks={_LARGEST: 1 / 64},
    )

    def measure(self, effort: Effort) -> Iterable[Value]:
        kinds: dict[str, Weighting] = {
            "softmax": Softmax(),
            "elu + 1": Linear(),
            "Performer, relu": Performer(kernel="relu"),
            "Performer, exp": Performer(),
        }
        for d_k in (16, 64, 256):
            for seed in effort.seeds:
                drawn, _ = draw_rows(d_k, effort.size(4096, 1024), seed)
                for kind, weighting in kinds.items():
                    scale = d_k**-0.5 if kind.startswith("Performer") else 1.0
                    largest = weighting.weights(drawn.q, drawn.k, scale).amax(-1).mean()
                    yield Share(_LARGEST, kind, d_k, seed, float(largest))

    def judge(self, seen: Evidence) -> Judgement:
        kinds = ("elu + 1", "Performer, relu", "Performer, exp", "softmax")
        elu, relu, exp, softmax = (seen.line(_LARGEST, kind) for kind in kinds)
        parts = {
            "for φ = elu + 1": elu[256] < 1.1 * elu[16],
            "for Performer's relu features": relu[256] < 1.1 * relu[16],
            "for those that estimate the softmax": exp[256] < 1.1 * exp[16],
        }
        grounds = (
            f"With elu + 1 the largest weight is {_listed(elu)} at d_k = 16, 64, 256, with 256 relu features of the "
            f"Performer {_listed(relu)}; the unscaled softmax reaches {softmax[256]:.2f}. With 256 features exp(w.x - "
            f"|x|²/2) it is {_listed(exp)}, though the scaled softmax that they estimate is flat: their noise, which "
            "grows with |q|², makes a few features decide."
        )
        return decide_by_part(parts, grounds)


@claims.register("additive")
@dataclass(frozen=True)
class AdditiveScores(Claim):
    """Additive scores do not follow the variance law, so they need no scale."""

    topic = "other mechanisms"
    source = "paper"
    said = "a variance that does not grow with d_k"
    expected = "confirmed"
    plot = Plot("tanh(W₁q + W₂k)·v with v ~ N(0, I/d_k), and q.k.", log=frozenset({_VARIANCE}))

    def measure(self, effort: Effort) -> Iterable[Value]:
        for d_k in (16, 64, 256):
            for seed in effort.seeds:
                drawn, _ = draw_rows(d_k, effort.size(512, 128), seed)
                yield Value(_VARIANCE, "additive", d_k, seed, float(Additive(seed).scores(drawn.q, drawn.k).var()))
                yield Value(_VARIANCE, "q.k", d_k, seed, float((drawn.q @ drawn.k.mT).var()))

    def judge(self, seen: Evidence) -> Judgement:
        additive, product = (seen.line(_VARIANCE, kind) for kind in ("additive", "q.k"))
        values = ", ".join(f"{value:.2f}" for value in additive.values())
        grounds = f"The variance is {values} at d_k = 16, 64, 256, where q.k has {product[256]:.0f} at 256."
        return decide(max(additive.values()) < 1 and product[256] > 100, grounds)


def _listed(line: dict[float, float]) -> str:
    return ", ".join(f"{value:.3f}" for value in line.values())

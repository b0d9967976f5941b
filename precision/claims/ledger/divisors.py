"""What other divisors than sqrt(d_k) do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch

from precision.claims import saturation as sweep
from precision.claims.claim import Claim, Judgement, claims, decide
from precision.claims.saturation import ENTROPY, LARGEST, SCALED, UNSCALED
from precision.experiments.draws import draw_rows
from precision.experiments.effort import Effort
from precision.experiments.evidence import Evidence, Share, Value
from precision.experiments.plot import Plot
from precision.problem import Shape
from precision.report.show import number
from precision.scores.scale import resolve_scale
from precision.scores.softmax import Softmax

_VARIANCE = "variance of the logits"


@claims.register("not-d")
@dataclass(frozen=True)
class NotD(Claim):
    """Dividing by d_k over-corrects: variance 1/d_k, and weights that are nearly uniform."""

    topic = "other divisors"
    source = "textbook wisdom"
    said = "entropy near its largest value"
    expected = "confirmed"
    plot = Plot("Normalised entropy: 1 is uniform, 0 is one-hot.", log=frozenset({sweep.VARIANCE}))

    def measure(self, effort: Effort) -> Iterable[Value]:
        return sweep.pick(effort, [ENTROPY, sweep.VARIANCE], [UNSCALED, SCALED, "d_k"])

    def judge(self, seen: Evidence) -> Judgement:
        entropy, variance = seen.mean(ENTROPY, "d_k", 64), seen.mean(sweep.VARIANCE, "d_k", 64)
        grounds = (
            f"At d_k = 64 the variance is {number(variance)} = {variance * 64:.3f}/d_k and the entropy {entropy:.4f}."
        )
        return decide(entropy > 0.99 and abs(variance * 64 - 1) < 0.1, grounds)


@claims.register("not-d-model")
@dataclass(frozen=True)
class NotDModel(Claim):
    """With many heads, dividing by sqrt(d_model) instead of sqrt(d_k) under-corrects."""

    topic = "other divisors"
    source = "textbook wisdom"
    said = "logits that stay too large"
    expected = "refuted"
    plot = Plot("8 heads of d_k = 64, d_model = 512.")

    def measure(self, effort: Effort) -> Iterable[Value]:
        shape = Shape(1, 8, 8, 64, 64, 64, 1)
        for seed in effort.seeds:
            drawn, _ = draw_rows(64, effort.size(1024, 512), seed, heads=8)
            for divisor, rule in (("√d_k", "sqrt_dk"), ("√d_model", "sqrt_dmodel")):
                scale = resolve_scale(rule, shape)
                largest = Softmax().weights(drawn.q, drawn.k, scale).amax(-1).mean()
                yield Value(_VARIANCE, divisor, torch.nan, seed, float((drawn.q @ drawn.k.mT * scale).var()))
                yield Share(LARGEST, divisor, torch.nan, seed, float(largest))

    def judge(self, seen: Evidence) -> Judgement:
        variance, largest = seen.settings(_VARIANCE), seen.settings(LARGEST)
        grounds = (
            f"Variance {variance['√d_model']:.4f} = d_k/d_model instead of {variance['√d_k']:.3f}, largest weight "
            f"{largest['√d_model']:.4f} against {largest['√d_k']:.3f}: it shrinks too much, not too little."
        )
        return decide(variance["√d_model"] > variance["√d_k"] and largest["√d_model"] > largest["√d_k"], grounds)


@claims.register("not-log")
@dataclass(frozen=True)
class NotLog(Claim):
    """Dividing by log d_k under-corrects: the softmax still sharpens as d_k grows."""

    topic = "other divisors"
    source = "textbook wisdom"
    said = "a largest weight that rises with d_k"
    expected = "confirmed"
    plot = Plot("The largest weight by divisor.")

    def measure(self, effort: Effort) -> Iterable[Value]:
        return sweep.pick(effort, [LARGEST], [UNSCALED, "ln d_k", SCALED])

    def judge(self, seen: Evidence) -> Judgement:
        line, scaled = seen.line(LARGEST, "ln d_k"), seen.line(LARGEST, SCALED)
        at = [line[d_k] for d_k in (64.0, 128.0, 256.0, 512.0)]
        grounds = f"The largest weight is {', '.join(f'{value:.3f}' for value in at)} at d_k = 64, 128, 256, 512."
        return decide(at == sorted(at) and at[0] > 2 * scaled[64], grounds)


@claims.register("small-d")
@dataclass(frozen=True)
class SmallD(Claim):
    """At d_k of 4 or less the scale makes no difference."""

    topic = "other divisors"
    source = "textbook wisdom"
    said = "the same softmax with and without it"
    expected = "refuted"
    plot = Plot("The largest weight at small d_k; at d_k = 1 the scale is 1.")

    def measure(self, effort: Effort) -> Iterable[Value]:
        for d_k in (1, 2, 3, 4):
            for seed in effort.seeds:
                drawn, _ = draw_rows(d_k, effort.size(8192, 2048), seed)
                for divisor, scale in ((UNSCALED, 1.0), (SCALED, d_k**-0.5)):
                    largest = Softmax().weights(drawn.q, drawn.k, scale).amax(-1).mean()
                    yield Share(LARGEST, divisor, d_k, seed, float(largest))

    def judge(self, seen: Evidence) -> Judgement:
        raw, scaled = seen.line(LARGEST, UNSCALED), seen.line(LARGEST, SCALED)
        equal = "equal" if raw[1] == scaled[1] else "different"
        grounds = (
            f"At d_k = 4 the largest weight is {raw[4]:.3f} without the scale and {scaled[4]:.3f} with it; at d_k = 1 "
            f"the two are {equal}."
        )
        return decide(raw[4] < 1.1 * scaled[4], grounds)

"""What a saturated softmax does to gradients: the upstream gradient of the weights is N(0, 1) throughout."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from precision.claims import saturation as sweep
from precision.claims.claim import Claim, Judgement, claims, decide
from precision.claims.saturation import (
    DQ_MEAN,
    DQ_MEDIAN,
    DQ_TAIL,
    JACOBIAN,
    OFF_PEAK,
    SCALED,
    UNSCALED,
    lost_gradients,
    lost_weights,
)
from precision.claims.statistics import DTYPES
from precision.experiments.effort import Effort
from precision.experiments.evidence import Evidence, Value
from precision.experiments.plot import Plot
from precision.report.show import number


@claims.register("jacobian")
@dataclass(frozen=True)
class Jacobian(Claim):
    """Off its peak the Jacobian of an unscaled softmax vanishes as d_k grows."""

    topic = "saturation"
    source = "paper"
    said = "the off-peak gradient tends to 0"
    expected = "confirmed"
    plot = Plot(
        "Median over all (query, key) pairs but each row's peak, and the median norm of diag(p) - p pᵀ; the left "
        "panel is logarithmic.",
        log=frozenset({OFF_PEAK}),
    )

    def measure(self, effort: Effort) -> Iterable[Value]:
        return sweep.pick(effort, [OFF_PEAK, JACOBIAN], [UNSCALED, SCALED])

    def judge(self, seen: Evidence) -> Judgement:
        raw = seen.line(OFF_PEAK, UNSCALED)
        scaled = [value for d_k, value in seen.line(OFF_PEAK, SCALED).items() if d_k >= 16]
        falls = all(later < earlier / 10 for earlier, later in pairwise(raw.values()))
        grounds = (
            f"Unscaled, the median off-peak entry falls from {number(raw[4])} at d_k = 4 to {number(raw[64])} at 64 "
            f"and {number(raw[1024])} at 1024; scaled it stays at {number(min(scaled))} to {number(max(scaled))}."
        )
        return decide(falls and max(scaled) < 2 * min(scaled), grounds)


@claims.register("q-k-gradients")
@dataclass(frozen=True)
class QKGradients(Claim):
    """So without the scale the gradients that reach Q and K nearly vanish."""

    topic = "saturation"
    source = "textbook wisdom"
    said = "a norm of dq near 0"
    expected = "refuted"
    plot = Plot(
        "Norm of a row of dQ: typical row, mean and tail, and beside them the off-peak entries. Without the scale the "
        "off-peak part falls by orders of magnitude while the mean norm grows: a few rows carry all of it.",
        log=frozenset({DQ_MEDIAN, DQ_MEAN, DQ_TAIL, OFF_PEAK}),
    )

    def measure(self, effort: Effort) -> Iterable[Value]:
        return sweep.pick(effort, [DQ_MEDIAN, DQ_MEAN, DQ_TAIL, OFF_PEAK], [UNSCALED, SCALED])

    def judge(self, seen: Evidence) -> Judgement:
        def pair(quantity: str, d_k: int) -> tuple[float, float]:
            return seen.mean(quantity, UNSCALED, d_k), seen.mean(quantity, SCALED, d_k)

        (median, scaled), (mean, _) = pair(DQ_MEDIAN, 128), pair(DQ_MEAN, 128)
        (far_median, _), (far_mean, far_scaled) = pair(DQ_MEDIAN, 1024), pair(DQ_MEAN, 1024)
        grounds = (
            f"At d_k = 128 the norm of dq is {median:.2g} in the median and {mean:.2g} in the mean without the scale, "
            f"and {scaled:.2g} with it: it grows. At 1024 the typical row has lost its gradient (median "
            f"{number(far_median)}) and the mean is still {far_mean:.2g} against {far_scaled:.2g}: heavy-tailed. What "
            "vanishes is the off-peak part: which key to prefer instead is what a query can no longer learn."
        )
        return decide(mean < scaled and far_mean < far_scaled, grounds)


@claims.register("fp16-zero-gradient")
@dataclass(frozen=True)
class ZeroGradient(Claim):
    """In fp16 the part that vanishes is not small but exactly 0."""

    topic = "number formats"
    source = "not said elsewhere"
    said = "a share of weights and gradients that are exactly 0"
    expected = "confirmed"
    plot = Plot("Share of the weights, and of dL/ds, that the dtype rounds to 0.")

    def measure(self, effort: Effort) -> Iterable[Value]:
        names = [name(dtype) for dtype in DTYPES for name in (lost_weights, lost_gradients)]
        return sweep.pick(effort, names, [UNSCALED, SCALED])

    def judge(self, seen: Evidence) -> Judgement:
        raw, scaled = (seen.line(lost_weights("fp16"), divisor) for divisor in (UNSCALED, SCALED))
        shares = ", ".join(f"{raw[d_k]:.2f} at {d_k:.0f}" for d_k in (64.0, 128.0, 256.0, 1024.0))
        others = {dtype: seen.mean(lost_weights(dtype), UNSCALED, 1024) for dtype in ("bf16", "fp32")}
        grounds = (
            f"Unscaled, this share of the weights rounds to 0 in fp16: {shares}; scaled, "
            f"at most {max(scaled.values()):.2g}. bf16 (down to 9e-41) and fp32 (1e-45) lose {others['bf16']:.1%} and "
            f"{others['fp32']:.1%} at 1024."
        )
        return decide(raw[64] > 0.25 and raw[1024] > raw[64] and max(scaled.values()) < 1e-3, grounds)

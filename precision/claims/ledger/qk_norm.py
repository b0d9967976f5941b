"""What the scale does once queries and keys are normalised."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from precision.claims.claim import Claim, Judgement, claims, decide, decide_by_part
from precision.claims.statistics import Rows
from precision.experiments.draws import draw_rows
from precision.experiments.effort import Effort
from precision.experiments.evidence import Evidence, Share, Value
from precision.experiments.plot import Plot
from precision.report.show import number

_WIDTHS = (16, 64, 256)
_RATIO, _ENTROPY = "variance of q.k / d_k", "entropy / ln 64 after 1/sqrt(d_k)"
_KINDS = {"L2": "qk_norm[norm=l2]", "RMS": "qk_norm[norm=rms]", "LayerNorm": "qk_norm[norm=layer]", "none": "normal"}


@claims.register("qk-norm-double")
@dataclass(frozen=True)
class QkNormDouble(Claim):
    """With QK-norm, dividing by sqrt(d_k) shrinks the scores a second time."""

    topic = "other mechanisms"
    source = "paper"
    said = "a softmax that is almost uniform"
    expected = "conditional"
    plot = Plot(
        "L2 brings q.k into -1 to 1, variance 1/d_k; RMS and LayerNorm keep the variance at d_k.",
        log=frozenset({_RATIO}),
    )

    def measure(self, effort: Effort) -> Iterable[Value]:
        for kind, inputs in _KINDS.items():
            for d_k in _WIDTHS:
                for seed in effort.seeds:
                    drawn, stream = draw_rows(d_k, effort.size(4096, 1024), seed, inputs=inputs)
                    s = drawn.q @ drawn.k.mT
                    yield Value(_RATIO, kind, d_k, seed, float(s.var()) / d_k)
                    rows = Rows.of((s / d_k**0.5).softmax(-1), stream)
                    yield Share(_ENTROPY, kind, d_k, seed, float(rows.entropy.mean()))

    def judge(self, seen: Evidence) -> Judgement:
        parts = {f"for {kind}": seen.mean(_RATIO, kind, 64) < 0.1 for kind in _KINDS if kind != "none"}
        l2, rms, layer = (seen.mean(_RATIO, kind, 64) for kind in ("L2", "RMS", "LayerNorm"))
        entropy, plain = seen.mean(_ENTROPY, "L2", 64), seen.mean(_ENTROPY, "RMS", 64)
        grounds = (
            f"At d_k = 64 the variance is {number(l2 * 64)} = {l2 * 64**2:.2f}/d_k for L2, {rms:.3f} d_k for RMS and "
            f"{layer:.3f} d_k for LayerNorm. After sqrt(d_k) the entropy is {entropy:.4f} for L2, uniform, and "
            f"{plain:.3f} for RMS, as without a norm: those two still need sqrt(d_k)."
        )
        return decide_by_part(parts, grounds)


_VARIANCE = "variance of q.k"
_INPUTS = {
    "q at 3, k normed": "asymmetric[std=3]",
    "q at 1, k normed": "asymmetric[std=1]",
    "both normed": "qk_norm[norm=l2]",
    "neither": "normal",
}


@claims.register("asymmetric")
@dataclass(frozen=True)
class AsymmetricNorm(Claim):
    """Normalising only one of Q and K breaks the divisor: the variance is no longer d_k."""

    topic = "other mechanisms"
    source = "textbook wisdom"
    said = "a variance that does not follow d_k"
    expected = "confirmed"
    plot = Plot("L2 norm of the keys alone: the variance is that of q, at every width.", log=frozenset({_VARIANCE}))

    def measure(self, effort: Effort) -> Iterable[Value]:
        for kind, inputs in _INPUTS.items():
            for d_k in _WIDTHS:
                for seed in effort.seeds:
                    drawn, _ = draw_rows(d_k, effort.size(4096, 2048), seed, inputs=inputs)
                    yield Value(_VARIANCE, kind, d_k, seed, float((drawn.q @ drawn.k.mT).var()))

    def judge(self, seen: Evidence) -> Judgement:
        line, plain = seen.line(_VARIANCE, "q at 3, k normed"), seen.line(_VARIANCE, "neither")
        grounds = (
            f"With q at standard deviation 3 and k of norm 1 the variance is {line[16]:.2f}, {line[64]:.2f} and "
            f"{line[256]:.2f} at d_k = 16, 64, 256: 9, not d_k."
        )
        follows = all(abs(line[d_k] / plain[d_k] - 1) < 0.1 for d_k in line)
        return decide(not follows and max(line.values()) < 1.1 * min(line.values()), grounds)

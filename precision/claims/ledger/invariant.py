"""That sqrt(d_k) takes the width out of attention."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain

from precision.claims import saturation as sweep
from precision.claims.claim import Claim, Judgement, claims, decide
from precision.claims.products import RATIO, TOLERANCE, measure_products
from precision.claims.saturation import ENTROPY, LARGEST, OFF_PEAK, SCALED
from precision.claims.training import runs
from precision.experiments.effort import Effort
from precision.experiments.evidence import Evidence, Value
from precision.experiments.plot import Plot
from precision.report.show import number

_VARIANCE = "variance of the logits"
_LOSS = "final loss of associative recall"


@claims.register("invariant")
@dataclass(frozen=True)
class Invariant(Claim):
    """Dividing by sqrt(d_k) gives logits of variance 1, and the same softmax, at every head size."""

    topic = "other divisors"
    source = "paper"
    said = "variance 1; entropy, largest weight and off-peak gradient that do not depend on d_k"
    expected = "confirmed"
    plot = Plot(
        "With the divisor sqrt(d_k) everything is flat in d_k. The last panel: one learning rate for three head sizes.",
        marks={_VARIANCE: 1.0},
    )

    def measure(self, effort: Effort) -> Iterable[Value]:
        ratios = (value for value in measure_products(effort) if value.quantity == RATIO)
        variances = (Value(_VARIANCE, SCALED, value.x, value.replicate, value.value) for value in ratios)
        losses = (
            Value(_LOSS, SCALED, d_k, seed, loss)
            for d_k in (64, 128, 192)
            for seed, loss in enumerate(runs.final_losses(runs.recall("sgd", d_k, effort))[SCALED])
        )
        return chain(variances, sweep.pick(effort, [LARGEST, ENTROPY, OFF_PEAK], [SCALED]), losses)

    def judge(self, seen: Evidence) -> Judgement:
        variances = seen.line(_VARIANCE, SCALED).values()
        spans = {name: _from_16(seen.line(name, SCALED)) for name in (LARGEST, ENTROPY, OFF_PEAK)}
        losses = [*seen.line(_LOSS, SCALED).values()]
        flat = all(max(values) < 1.1 * min(values) for values in spans.values())
        grounds = (
            f"The variance is {min(variances):.3f} to {max(variances):.3f} for d_k from 1 to 1024. From d_k = 16 on "
            f"the largest weight is {_span(spans[LARGEST])}, the entropy {_span(spans[ENTROPY])}, the off-peak "
            f"gradient {_span(spans[OFF_PEAK])}. One learning rate brings heads of 64, 128 and 192 to losses of "
            f"{_span(losses)}."
        )
        unit = all(abs(variance - 1) < TOLERANCE for variance in variances)
        return decide(unit and flat and max(losses) < 0.1, grounds)


def _from_16(line: dict[float, float]) -> list[float]:
    return [value for d_k, value in line.items() if d_k >= 16]


def _span(values: list[float]) -> str:
    return f"{number(min(values))} to {number(max(values))}"

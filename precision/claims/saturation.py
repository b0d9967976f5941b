"""The sweep that many claims read: the softmax of normal q and k against d_k, under each divisor."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import product

from precision.claims.statistics import DTYPES, SHARP, Rows, percentile, share_zero
from precision.experiments.draws import draw_rows
from precision.experiments.effort import Effort
from precision.experiments.evidence import Share, Value
from precision.problem import Shape
from precision.scores.scale import resolve_scale
from precision.scores.softmax import Softmax

WIDTHS = (4, 16, 64, 128, 256, 512, 1024)
RULES = {"1": "none", "ln d_k": "log_dk", "√d_k": "sqrt_dk", "d_k": "dk"}
UNSCALED, SCALED = "1", "√d_k"

LARGEST, MEDIAN_LARGEST, SHARPS = "largest weight, mean", "largest weight, median", "rows with largest weight ≥ .99"
ENTROPY, JACOBIAN = "entropy / ln 64, mean", "norm of the Jacobian, median"
OFF_PEAK = "off-peak |dL/ds|, median"
DQ_MEDIAN, DQ_MEAN, DQ_TAIL = "norm of dq, median", "norm of dq, mean", "norm of dq, 99.9th percentile"
VARIANCE = "variance of the logits"


def lost_weights(dtype: str) -> str:
    """The name of the share of weights that a dtype rounds to 0."""
    return f"weights that round to 0, {dtype}"


def lost_gradients(dtype: str) -> str:
    """The name of the share of dL/ds that a dtype rounds to 0."""
    return f"dL/ds that round to 0, {dtype}"


_SHARES = {
    *(LARGEST, MEDIAN_LARGEST, SHARPS, ENTROPY),
    *(lost(dtype) for dtype in DTYPES for lost in (lost_weights, lost_gradients)),
}


def pick(effort: Effort, quantities: list[str], divisors: list[str]) -> list[Value]:
    """The part of the sweep that a claim is about."""
    by_key: dict[tuple[str, str], list[Value]] = {pair: [] for pair in product(quantities, divisors)}
    for value in _sweep(effort.size(4096, 1024), tuple(effort.seeds)):
        if (value.quantity, value.setting) in by_key:
            by_key[value.quantity, value.setting].append(value)
    return [value for values in by_key.values() for value in values]


@cache
def _sweep(rows: int, seeds: tuple[int, ...]) -> tuple[Value, ...]:
    return tuple(value for d_k in WIDTHS for seed in seeds for value in _measure(d_k, rows, seed))


def _measure(d_k: int, rows: int, seed: int) -> Iterator[Value]:
    drawn, stream = draw_rows(d_k, rows, seed)
    shape = Shape(1, 1, 1, 64, 64, d_k, 1)
    state = stream.get_state()
    for divisor, rule in RULES.items():
        scale = resolve_scale(rule, shape)
        stream.set_state(state)  # the same upstream gradient under every divisor
        seen = Rows.of(Softmax().weights(drawn.q, drawn.k, scale), stream)
        dq = seen.dq_norm(drawn.k, scale)
        found = {
            VARIANCE: float((drawn.q @ drawn.k.mT * scale).var()),
            LARGEST: float(seen.largest.mean()),
            MEDIAN_LARGEST: float(seen.largest.median()),
            SHARPS: float((seen.largest >= SHARP).double().mean()),
            ENTROPY: float(seen.entropy.mean()),
            JACOBIAN: float(seen.jacobian_norm.median()),
            OFF_PEAK: percentile(seen.off_peak, 50),
            DQ_MEDIAN: percentile(dq, 50),
            DQ_MEAN: float(dq.mean()),
            DQ_TAIL: percentile(dq, 99.9),
        }
        found |= {lost_weights(dtype): share_zero(seen.p, dtype) for dtype in DTYPES}
        found |= {lost_gradients(dtype): share_zero(seen.ds, dtype) for dtype in DTYPES}
        for quantity, value in found.items():
            kind = Share if quantity in _SHARES else Value
            yield kind(quantity, divisor, d_k, seed, value)

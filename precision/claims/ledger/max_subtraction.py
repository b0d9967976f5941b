"""What subtracting the maximum of a row does in half precision, with the scale and without."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from math import nan

import torch

from precision.backends.eager import Eager
from precision.claims.claim import Claim, Judgement, claims, decide_by_part
from precision.experiments.draws import generator
from precision.experiments.effort import Effort
from precision.experiments.evidence import Evidence, Share, Value
from precision.experiments.plot import Plot
from precision.formats import find_format
from precision.inputs.large import Large
from precision.inputs.make import round_operands
from precision.numerics.hazards import find_hazards
from precision.numerics.reference import attend
from precision.operands import Operands
from precision.problem import Shape

_NAN, _ZERO = "rows that are not finite", "weights that round to 0"
_SCALES = {"1/sqrt(d_k)": None, "unscaled": 1.0}


@cache
def _ablation(dtype: str, seeds: tuple[int, ...]) -> tuple[Value, ...]:
    values = []
    for seed in seeds:
        q, k, v = Large(1.0).draw(Shape(1, 1, 1, 512, 1024, 64, 64), generator(seed))
        for name, scale in _SCALES.items():
            x = round_operands(Operands(q, k, v, scale=scale), dtype)
            lost = find_hazards(x, attend(x), find_format(dtype))
            values.append(Share(_ZERO, f"{dtype}, {name}", nan, seed, lost.weights_zero / lost.pairs))
            for shift in (True, False):
                bad = ~Eager(max_subtraction=shift).attend(x).isfinite().all(-1)
                setting = f"{dtype}, {name}, {'max-subtraction' if shift else 'no max-subtraction'}"
                values.append(Share(_NAN, setting, nan, seed, float(bad.double().mean())))
    return tuple(values)


@claims.register("fp16-secondary")
@dataclass(frozen=True)
class OverflowSecondary(Claim):
    """Overflow in fp16 is a secondary matter: without the scale gradients fail long before a NaN appears."""

    topic = "number formats"
    source = "textbook wisdom"
    said = "no NaN at usual sizes, while weights vanish"
    expected = "conditional"
    plot = Plot("Textbook attention in the dtype, d_k = 64, 1024 keys, normal q and k: the two-by-two ablation.")

    def measure(self, effort: Effort) -> Iterable[Value]:
        return _ablation("fp16", tuple(effort.seeds))

    def judge(self, seen: Evidence) -> Judgement:
        rows, zero = seen.settings(_NAN), seen.mean(_ZERO, "fp16, unscaled")
        parts = {
            f"with{'' if shift == 'max-subtraction' else 'out'} max-subtraction": rows[f"fp16, unscaled, {shift}"] == 0
            and zero > 0.1
            for shift in ("max-subtraction", "no max-subtraction")
        }
        grounds = (
            f"Unscaled fp16 at d_k = 64 has {rows['fp16, unscaled, max-subtraction']:.0%} of its rows not finite with "
            f"max-subtraction and {rows['fp16, unscaled, no max-subtraction']:.0%} without; {zero:.0%} of its weights "
            f"are exactly 0. With max-subtraction a NaN needs a score beyond {find_format('fp16').largest:.0f}."
        )
        return decide_by_part(parts, grounds)


_INFINITE = "infinite exponentials or sums, shifted"


@claims.register("shift-is-safe")
@dataclass(frozen=True)
class ShiftIsSafe(Claim):
    """Subtracting the row's maximum makes the softmax safe."""

    topic = "number formats"
    source = "documentation"
    said = "nothing goes wrong any more"
    expected = "conditional"
    plot = Plot(
        "d_k = 64, 1024 keys, normal q and k. Infinities: none. Weights that vanish: most, in fp16 without the scale."
    )

    def measure(self, effort: Effort) -> Iterable[Value]:
        for dtype in ("fp16", "bf16", "fp32"):
            yield from (value for value in _ablation(dtype, tuple(effort.seeds)) if value.quantity == _ZERO)
            for seed in effort.seeds:
                q, k, v = Large(8.0).draw(Shape(1, 1, 1, 128, 1024, 64, 1), generator(seed))
                x = round_operands(Operands(q, k, v, scale=1.0), dtype)
                scores = x.q @ x.k.mT
                weights = (scores - scores.amax(-1, keepdim=True)).exp()
                infinite = torch.cat([weights.isinf().flatten(), weights.sum(-1).isinf().flatten()])
                yield Share(_INFINITE, dtype, nan, seed, float(infinite.double().mean()))

    def judge(self, seen: Evidence) -> Judgement:
        zero = seen.settings(_ZERO)
        parts = {
            "against overflow": max(seen.settings(_INFINITE).values()) == 0,
            "against underflow": max(zero.values()) < 0.01,
        }
        grounds = (
            "With standard deviation 8, scores in the thousands, no exponential and no sum overflows in fp16, bf16 or "
            f"fp32. In fp16, unscaled, {zero['fp16, unscaled']:.0%} of the weights of plain normal inputs round to 0."
        )
        return decide_by_part(parts, grounds)

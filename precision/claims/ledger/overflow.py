"""What half precision cannot hold: scores, and exponentials of scores, counted apart."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import nan

import torch

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
from precision.numerics.rounding import torch_dtype
from precision.operands import Operands
from precision.problem import Shape

_LARGEST_EXP = "largest x with a finite exp(x)"
_SCORES, _EXPS = "scores that are infinite", "rows with an infinite exp, unshifted"
_STDS = (1, 4, 16, 64)


@claims.register("half-overflow")
@dataclass(frozen=True)
class HalfOverflow(Claim):
    """Large raw logits overflow in half precision, fp16 and bf16."""

    topic = "number formats"
    source = "textbook wisdom"
    said = "infinities in both formats"
    expected = "conditional"
    plot = Plot("Unscaled scores at d_k = 128, with q and k of growing standard deviation; no maximum subtracted.",
                x="standard deviation of q and k")  # fmt: skip

    def measure(self, effort: Effort) -> Iterable[Value]:
        for dtype in ("fp16", "bf16"):
            yield Value(_LARGEST_EXP, dtype, nan, 0, _largest_exp(dtype))
            for std in _STDS:
                for seed in effort.seeds:
                    q, k, v = Large(std).draw(Shape(1, 1, 1, 128, 128, 128, 1), generator(seed))
                    x = round_operands(Operands(q, k, v, scale=1.0), dtype)
                    found = find_hazards(x, attend(x), find_format(dtype))
                    yield Share(_SCORES, dtype, std, seed, found.scores_over_before_scale / found.pairs)
                    yield Share(_EXPS, dtype, std, seed, found.rows_exp_inf_unshifted / q.shape[2])

    def judge(self, seen: Evidence) -> Judgement:
        parts = {
            f"for {what} in {dtype}": max(seen.line(quantity, dtype).values()) > 0
            for what, quantity in (("scores", _SCORES), ("exponentials", _EXPS))
            for dtype in ("fp16", "bf16")
        }
        limits = {dtype: find_format(dtype).largest for dtype in ("fp16", "bf16")}
        grounds = (
            f"fp16 holds scores up to {limits['fp16']:.0f} and exp(x) up to x = {seen.mean(_LARGEST_EXP, 'fp16'):.2f}; "
            f"bf16 has the range of fp32, scores up to {limits['bf16']:.2g}, but exp(x) only up to "
            f"x = {seen.mean(_LARGEST_EXP, 'bf16'):.1f}."
        )
        return decide_by_part(parts, grounds)


def _largest_exp(dtype: str) -> float:
    """By trying every positive number of a 16-bit format."""
    x = torch.arange(2**15, dtype=torch.int16).view(torch_dtype(dtype))
    return float(x[x.isfinite() & x.exp().isfinite()].max())

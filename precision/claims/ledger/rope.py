"""What rotary position embeddings do to the size of scores."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from precision.claims.claim import Claim, Judgement, claims, decide
from precision.claims.products import TOLERANCE
from precision.experiments.draws import draw_rows
from precision.experiments.effort import Effort
from precision.experiments.evidence import Evidence, Value
from precision.experiments.plot import Plot
from precision.inputs.rope import rotate
from precision.report.show import number

_NORM, _RATIO = "largest relative change of a norm", "variance of q.k / d_k"
_D_K = 64


@claims.register("rope")
@dataclass(frozen=True)
class RotaryPreserves(Claim):
    """RoPE turns q and k and keeps their norms, so the scale stays right."""

    topic = "other mechanisms"
    source = "paper"
    said = "the same norms, the same variance"
    expected = "confirmed"
    plot = Plot(f"d_k = {_D_K}; queries start at the position on the axis, keys at 0.", x="position of the first query",
                marks={_RATIO: 1.0}, log=frozenset({_NORM}))  # fmt: skip

    def measure(self, effort: Effort) -> Iterable[Value]:
        for start in (1, 64, 4096, 262144):
            for seed in effort.seeds:
                drawn, _ = draw_rows(_D_K, effort.size(8192, 4096), seed)
                q, k = rotate(drawn.q, start=start), rotate(drawn.k)
                change = (q.norm(dim=-1) / drawn.q.norm(dim=-1) - 1).abs().max()
                yield Value(_NORM, "", start, seed, float(change))
                yield Value(_RATIO, "", start, seed, float((q @ k.mT).var()) / _D_K)

    def judge(self, seen: Evidence) -> Judgement:
        norms, ratios = seen.line(_NORM).values(), seen.line(_RATIO).values()
        grounds = (
            f"No norm changes by more than {number(max(norms))}, which is rounding; variance / d_k is "
            f"{min(ratios):.3f} to {max(ratios):.3f} at positions up to 262144."
        )
        return decide(max(norms) < 1e-14 and all(abs(ratio - 1) < TOLERANCE for ratio in ratios), grounds)

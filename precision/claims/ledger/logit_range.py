"""How far the scaled logits of a row reach."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from precision.claims.claim import Claim, Judgement, claims, decide
from precision.experiments.draws import draw_rows
from precision.experiments.effort import Effort
from precision.experiments.evidence import Evidence, Value
from precision.experiments.plot import Plot

_MAX = "largest scaled logit of a row, mean"
_D_K = 64


@claims.register("range-3")
@dataclass(frozen=True)
class Range(Claim):
    """Scaled logits stay within about 3 of zero."""

    topic = "the law"
    source = "textbook wisdom"
    said = "a largest logit near 3"
    expected = "confirmed"
    plot = Plot("d_k = 64. The law sqrt(2 ln N) bounds the mean from above and gives its growth.", x="keys N")

    def measure(self, effort: Effort) -> Iterable[Value]:
        for keys in (64, 256, 1024, 4096):
            yield Value(_MAX, "sqrt(2 ln N)", keys, 0, math.sqrt(2 * math.log(keys)))
            for seed in effort.seeds:
                drawn, _ = draw_rows(_D_K, effort.size(4096, 1024) * 256 // max(keys, 256), seed, keys=keys)
                largest = (drawn.q @ drawn.k.mT).amax(-1) / math.sqrt(_D_K)
                yield Value(_MAX, "measured", keys, seed, float(largest.mean()))

    def judge(self, seen: Evidence) -> Judgement:
        found, law = seen.line(_MAX, "measured"), seen.line(_MAX, "sqrt(2 ln N)")
        grounds = (
            f"The largest logit of a row is {found[64]:.2f} of 64 keys, {found[1024]:.2f} of 1024 and "
            f"{found[4096]:.2f} of 4096: it grows as sqrt(2 ln N), without a bound but slowly."
        )
        near = all(2 < value < 4 for value in found.values())
        return decide(near and all(0.8 * law[keys] < found[keys] < law[keys] for keys in found), grounds)

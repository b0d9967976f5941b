"""The example by which a peaked softmax is usually shown."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import nan

import torch

from precision.claims.claim import Claim, Judgement, claims, decide
from precision.experiments.effort import Effort
from precision.experiments.evidence import Evidence, Value
from precision.experiments.plot import Plot

_WEIGHT = "weight"
_KEYS = ("key 1 (score 0)", "key 2 (score 0)", "key 3 (score 11)", "key 4 (score 0)")
_SAID = (2e-5, 2e-5, 0.99994, 2e-5)


@claims.register("peaked-example")
@dataclass(frozen=True)
class PeakedExample(Claim):
    """softmax(0, 0, 11, 0) is about (2e-5, 2e-5, .99994, 2e-5): one score of 11 takes everything."""

    topic = "saturation"
    source = "textbook wisdom"
    said = "2e-5 and .99994"
    expected = "confirmed"
    plot = Plot("The four weights, on a logarithmic axis.", log=frozenset({_WEIGHT}))
    replicates = "one exact value"

    def measure(self, effort: Effort) -> Iterable[Value]:
        weights = torch.tensor([0, 0, 11, 0], dtype=torch.float64).softmax(0)
        return [Value(_WEIGHT, key, nan, 0, float(w)) for key, w in zip(_KEYS, weights, strict=True)]

    def judge(self, seen: Evidence) -> Judgement:
        small, large = seen.mean(_WEIGHT, _KEYS[0]), seen.mean(_WEIGHT, _KEYS[2])
        # To the digits that matter: one digit of the small weights, and how far the large one is from 1.
        holds = round(small, 5) == _SAID[0] and abs(large - _SAID[2]) < 2e-5
        return decide(holds, f"The weights are {small:.3e} and {large:.6f}; .99994 should read {large:.5f}.")

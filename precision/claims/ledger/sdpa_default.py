"""Which scale torch's attention applies when none is given."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import nan

import torch

from precision.backends.backend import Absent, Refused, backends
from precision.claims.claim import Claim, Judgement, claims, decide
from precision.experiments.draws import draw_rows
from precision.experiments.effort import Effort
from precision.experiments.evidence import Evidence, Share, Value
from precision.experiments.plot import Plot
from precision.inputs.make import round_operands
from precision.operands import Operands

_EQUAL = "share of output elements equal to the bit"


@claims.register("sdpa-default")
@dataclass(frozen=True)
class SdpaDefault(Claim):
    """torch's scaled_dot_product_attention applies 1/sqrt(d_k) itself."""

    topic = "practice"
    source = "documentation"
    said = "the same output with the scale left out and given"
    expected = "confirmed"
    plot = Plot("1 means that every bit is the same; against scale 1 nothing is.", marks={_EQUAL: 1.0})

    def measure(self, effort: Effort) -> Iterable[Value]:
        for seed in effort.seeds:
            drawn, _ = draw_rows(64, 256, seed, heads=2)
            exact = Operands(drawn.q, drawn.k, drawn.k)  # torch's fused kernels want d_v = d_k
            for dtype in ("fp32", "fp16", "bf16"):
                yield from _compare(round_operands(exact, dtype), dtype, seed)

    def judge(self, seen: Evidence) -> Judgement:
        shares = {name: share for name, share in seen.settings(_EQUAL).items() if not name.endswith("scale 1")}
        other = max(share for name, share in seen.settings(_EQUAL).items() if name.endswith("scale 1"))
        kernels = sorted({name.partition(",")[0] for name in shares})
        grounds = (
            f"{', '.join(kernels)} in fp32, fp16 and bf16: {min(shares.values()):.0%} of the elements are equal to the "
            f"bit. Against an explicit scale of 1, at most {other:.1%} are."
        )
        return decide(min(shares.values()) == 1 and other < 0.5, grounds)


def _compare(x: Operands, dtype: str, seed: int) -> Iterable[Value]:
    for name in backends.names():
        if name.partition("-")[0] != "sdpa":
            continue
        given = replace(x, scale=1 / math.sqrt(x.q.shape[-1]))
        try:
            default, explicit, unscaled = (_run(name, call) for call in (x, given, replace(x, scale=1.0)))
        except (Absent, Refused):
            continue
        yield Share(_EQUAL, f"{name}, {dtype}", nan, seed, float((default == explicit).double().mean()))
        yield Share(_EQUAL, f"{name}, {dtype}, scale 1", nan, seed, float((default == unscaled).double().mean()))


def _run(name: str, x: Operands) -> torch.Tensor:
    with backends.build(name).prepare(x) as call:
        return call()

"""Golden et al.: flash attention whose state is kept in bf16."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from precision.experiments.effort import Effort
from precision.experiments.evidence import Value
from precision.experiments.online_state import state_errors
from precision.experiments.plot import Plot
from precision.published.published import Published, Target, published

_ERROR = "RMSE over that of row-wise bf16"


@published.register("golden-state")
@dataclass(frozen=True)
class GoldenState(Published):
    """Flash attention that keeps m, l and O in bf16 is much less accurate than row-wise attention; in fp32, more."""

    source = "Golden et al., Is Flash Attention Stable?, 2024, arXiv 2405.02803"
    setup = "bf16 inputs ~ N(0, 1), 8192 keys, d = 64; error of the bf16 output against fp64 attention of the inputs."
    choices = (
        "Which operations of the row-wise baseline round, and in which format a block is computed. Here every tensor "
        "of the baseline is bf16, products and exponentials of a block are fp32, and m, l and O are rounded after each "
        "block. A baseline that rounds more stages makes every ratio smaller, hence the wide tolerances."
    )
    plot = Plot(
        "The smaller the block, the more often a bf16 state is rounded. Below 1: better than row-wise bf16.",
        x="keys in a block",
        log=frozenset({_ERROR}),
        marks={_ERROR: 1.0},
    )

    def measure(self, effort: Effort) -> Iterable[Value]:
        for seed in effort.seeds:
            for state, block, ratio in state_errors(effort.size(128, 32), seed):
                yield Value(_ERROR, f"{state} state", block, seed, ratio)

    def targets(self, effort: Effort) -> Iterable[Target]:
        for block, right in ((16, 41.0), (64, 5.0), (256, 2.4)):
            yield Target(_ERROR, "bf16 state", right, 0.25, 0.35, relative=True, x=block, origin="measured before")
        yield Target(_ERROR, "fp32 state", 0.5, 0.15, 0.2, x=64, origin="measured before")

"""The error of an online softmax by the format of its state (m, l, O), over that of row-wise attention."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from torch import Tensor

from precision.experiments.draws import generator
from precision.inputs.make import round_operands
from precision.inputs.normal import Normal
from precision.numerics.reference import attend
from precision.operands import Operands
from precision.problem import Shape
from precision.scores.online_softmax import OnlineSoftmax
from precision.scores.softmax import Softmax

BLOCKS = (16, 64, 256)
STATES = ("bf16", "fp32")


class StateError(NamedTuple):
    """The RMSE of one state and block size, over that of row-wise attention with every operation in bf16."""

    state: str
    block: int
    ratio: float


def state_errors(queries: int, seed: int) -> Iterator[StateError]:
    """Every state and block size: normal bf16 inputs, 8192 keys, d = 64, errors of the output in bf16."""
    q, k, v = Normal().draw(Shape(1, 1, 1, queries, 8192, 64, 64), generator(seed))
    x = round_operands(Operands(q, k, v), "bf16")
    right = attend(x).out

    def error(out: Tensor) -> float:
        return math.sqrt(float((out.double() - right).square().mean()))

    baseline = error(Softmax().weights(x.q, x.k, x.scale_value) @ x.v)
    for state in STATES:
        for block in BLOCKS:
            # Products and exponentials in fp32, as matrix units give them; what is kept between blocks is rounded.
            out = OnlineSoftmax(block, state).attend(x.q.float(), x.k.float(), x.v.float(), x.scale_value)
            yield StateError(state, block, error(out.bfloat16()) / baseline)

"""The limits of formats: the value from which on a stage overflows, saturates or loses what it holds."""

import math

import pytest
import torch

from precision.explain.first_failure import find_failures
from precision.numerics.failure import Failure, Place, Reach
from precision.operands import Operands
from precision.stages.plan import Plan


def one_key(v: float, plan: Plan) -> tuple[Failure, ...]:
    """With one key the output is v."""
    ones = torch.ones(1, 1, 1, 1, dtype=torch.float64)
    return find_failures(plan, Operands(ones, ones, v * ones))


@pytest.mark.parametrize(
    ("rounding", "below", "from_"),
    [
        ("fp16", 65519.9, 65520.0),
        ("e5m2", 61439.9, 61440.0),
        ("bf16", 3.3961e38, 3.3962e38),
        ("fp16:x4", 16379.9, 16380.0),
    ],
)
def test_a_value_overflows_from_the_limit_on(rounding: str, below: float, from_: float) -> None:
    assert one_key(below, Plan(out=rounding)) == ()
    (failure,) = one_key(from_, Plan(out=rounding))
    assert (failure.stage, failure.kind, failure.first) == ("out", "overflow", Place((0, 0, 0, 0), from_, math.inf))
    assert below < failure.limit <= from_
    assert failure.spread == (Reach("out", 1, 1),) and failure.is_shown


def test_truncation_never_overflows_but_cuts() -> None:
    (failure,) = one_key(1e5, Plan(out="fp16:truncate"))
    assert (failure.kind, failure.first.became) == ("saturated", 65504.0)


def test_a_format_without_infinity_cuts() -> None:
    """448 is the largest of e4m3, the next would be 480: from 464 on half a step is lost."""
    assert one_key(463.9, Plan(out="e4m3")) == ()
    (failure,) = one_key(464.0, Plan(out="e4m3"))
    assert (failure.kind, failure.first.became, failure.limit) == ("saturated", 448.0, 464.0)
    assert one_key(1e6, Plan(v="e4m3:tensor")) == ()


@pytest.mark.parametrize(("rounding", "limit"), [("fp16", 2.0**-25), ("e4m3", 2.0**-10), ("fp16:truncate", 2.0**-24)])
def test_a_value_becomes_0_up_to_the_limit(rounding: str, limit: float) -> None:
    lost = limit if rounding != "fp16:truncate" else 0.99 * limit  # a tie goes to even, to 0
    (failure,) = one_key(lost, Plan(out=rounding))
    assert (failure.kind, failure.limit, failure.first) == ("underflow", limit, Place((0, 0, 0, 0), lost, 0.0))
    assert one_key(1.01 * limit, Plan(out=rounding)) == ()

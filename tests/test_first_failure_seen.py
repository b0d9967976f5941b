"""First failures seen in staged runs, against what theory says of cases that people met."""

import math
from dataclasses import replace

import pytest
import torch
from failing_calls import EAGER, FLASH, case, first_index, reach
from hypothesis import given
from hypothesis import strategies as st
from plain import any_operands

from precision.explain.first_failure import find_failures
from precision.formats import FORMATS
from precision.numerics.failure import Place, Reach
from precision.operands import Operands
from precision.stages import forward
from precision.stages.plan import Plan
from precision.stages.presets import find_plan


@pytest.mark.parametrize("std", [100, 200])
def test_scores_overflow_before_the_scale(std: int) -> None:
    x = case(f"scores-overflow[std={std}]", "fp16")
    raw = x.q.double() @ x.k.double().mT
    over = raw.float().abs() >= 65520  # the accumulator is fp32
    failure = find_failures(EAGER, x)[0]
    assert (failure.stage, failure.kind, failure.limit) == ("s", "overflow", 65520)
    assert failure.first.index == first_index(over)
    assert failure.first.value == pytest.approx(float(raw[failure.first.index]), rel=1e-6)
    assert (failure.elements, failure.rows) == (int(over.sum()), int(over.any(-1).sum()))
    broken = int((raw >= 65520).any(-1).sum())  # a row with +inf: inf - inf
    assert reach(failure, "out") == (64 * broken, broken) and reach(failure, "m") == (broken, broken)
    assert reach(failure, "shifted")[0] == int((raw >= 65520).sum())


def test_scores_overflow_after_the_scale_where_it_comes_first() -> None:
    scaled = [
        find_failures(find_plan("eager-before"), case(f"scores-overflow[std={std}]", "fp16")) for std in (100, 200)
    ]
    assert not any(failure.is_shown for failure in scaled[0])
    assert scaled[1][0].stage == "s" and scaled[1][0].is_shown
    x = case("scores-overflow[std=200]", "fp16")
    raw = (x.q.double() @ x.k.double().mT) / 8  # an exact scale
    assert scaled[1][0].first.index == first_index(raw.float().abs() >= 65520)


def test_every_logit_overflows_and_the_output_is_no_number() -> None:
    """q.k = -16 x 1e20 x 1e20 = -1.6e41 in fp32."""
    failure = find_failures(EAGER, case("silent-zero", "fp32"))[0]
    assert (failure.stage, failure.kind, failure.first.index) == ("s_acc", "overflow", (0, 0, 0, 0))
    assert failure.first.value == pytest.approx(-1.6e41, rel=1e-6) and failure.first.became == -math.inf
    assert failure.limit == FORMATS["fp32"].overflow_threshold
    assert (failure.elements, failure.rows) == (64, 8)


def test_the_order_of_the_scale_decides() -> None:
    """q.k of key 3 is 1.75 x 2^128, and a quarter of it fits."""
    failure = find_failures(EAGER, case("scale-order", "fp32"))[0]
    assert failure.first == Place((0, 0, 0, 3), 1.75 * 2.0**128, math.inf) and failure.elements == failure.rows == 8
    assert find_failures(find_plan("eager-before"), case("scale-order", "fp32")) == ()


def test_a_nan_of_q_goes_into_its_row_and_all_gradients_of_the_head() -> None:
    x = case("nan-lost", "fp16")
    (failure,) = find_failures(EAGER, x, torch.ones_like(x.q))
    assert (failure.stage, failure.kind, failure.first.index) == ("q", "input", (0, 0, 0, 0))
    assert reach(failure, "s") == (8, 1) and reach(failure, "out") == (16, 1)
    assert reach(failure, "dq") == (16, 1) and reach(failure, "dk") == reach(failure, "dv") == (8 * 16, 8)


def test_a_nan_of_v_goes_into_every_row_of_the_query_heads_that_share_it() -> None:
    x = case("gqa", "fp16")
    x.v[0, 1, 2, 3] = torch.nan
    (failure,) = find_failures(FLASH, x)
    group = x.q.shape[1] // x.k.shape[1]
    assert (failure.stage, failure.first.index) == ("v", (0, 1, 2, 3))
    assert reach(failure, "out") == (group * x.q.shape[2], group * x.q.shape[2])


@pytest.mark.parametrize(("plan", "stage"), [(EAGER, "e"), (FLASH, "p")])
def test_weights_underflow(plan: Plan, stage: str) -> None:
    """exp(-17.5) = 2.51e-8 < 2^-25, 4095 times in each of 8 rows: 1.03e-4 of the weight."""
    (failure,) = find_failures(plan, case("weights-underflow", "fp16"))
    assert (failure.stage, failure.kind, failure.first.index, failure.first.became) == (
        stage,
        "underflow",
        (0, 0, 0, 1),
        0,
    )
    assert failure.first.value == pytest.approx(math.exp(-17.5), rel=1e-6) and failure.limit == 2.0**-25
    assert (failure.elements, failure.rows) == (4095 * 8, 8) and not failure.is_shown
    mass = 4095 * math.exp(-17.5)
    assert failure.weight == pytest.approx(mass / (1 + mass), rel=1e-3)


def test_a_row_without_a_key_is_minus_infinity_less_itself() -> None:
    x = case("masked-row", "fp16")
    (failure,) = find_failures(EAGER, x, torch.ones_like(x.q))
    assert (failure.stage, failure.kind, failure.first.index) == ("shifted", "invalid", (0, 0, 2, 0))
    assert (failure.elements, failure.rows) == (2 * 4, 2) and reach(failure, "out") == (2 * 16, 2)
    assert reach(failure, "dv") == (2 * 4 * 16, 2 * 4)  # of every key
    assert find_failures(FLASH, x, torch.ones_like(x.q)) == ()


def test_an_exponential_overflows_without_a_maximum() -> None:
    x = Operands(torch.full((1, 1, 1, 1), 4.0), torch.tensor([[[[2.0], [3.0]]]]), torch.ones(1, 1, 2, 1), scale=1.0)
    (failure,) = find_failures(Plan(e="fp16", max="none"), x)
    assert (failure.stage, failure.first.index) == ("e", (0, 0, 0, 1))
    assert failure.first.value == pytest.approx(math.exp(12)) and reach(failure, "out") == (1, 1)


def test_exponentials_that_all_vanish_end_as_0_over_0() -> None:
    x = Operands(torch.full((1, 1, 1, 1), -4.0), torch.full((1, 1, 2, 1), 5.0), torch.ones(1, 1, 2, 1), scale=1.0)
    (failure,) = find_failures(Plan(e="fp16", max="none"), x)
    assert (failure.stage, failure.kind, failure.elements) == ("e", "underflow", 2)
    assert reach(failure, "out") == (1, 1) and failure.is_shown


def test_a_scale_that_is_no_number() -> None:
    x = replace(case("gqa", "fp16"), scale=math.nan)
    (failure,) = find_failures(EAGER, x)
    assert (failure.stage, failure.kind) == ("scaled", "invalid")


def test_storage_overflows() -> None:
    x = case("gqa", "fp32")
    x.k[0, 1, 3, 2] = 7e4
    failure = find_failures(FLASH.resolve("fp16"), x)[0]
    assert (failure.stage, failure.first) == ("k", Place((0, 1, 3, 2), 7e4, math.inf))
    assert reach(failure, "out")[1] > 0


def test_a_row_belongs_to_the_failure_that_came_first() -> None:
    """NaN in q takes its whole row, and NaN in v one column of all others."""
    x = case("nan-lost", "fp16")
    x.v[0, 0, 5, 7] = torch.nan
    q, v = find_failures(EAGER, x)
    assert (q.stage, v.stage, v.first.index) == ("q", "v", (0, 0, 5, 7))
    assert reach(q, "out") == (16, 1) and reach(v, "out") == (7, 7)


def test_a_score_that_vanished_is_not_to_blame_for_an_output_that_overflows() -> None:
    """The score of key 0 becomes -inf and is right to; v of key 1 is beyond fp16."""
    k, v = torch.tensor([[[[-7e4], [0.0]]]]).double(), torch.tensor([[[[0.0], [7e4]]]]).double()
    x = Operands(torch.ones(1, 1, 1, 1).double(), k, v, scale=1.0)
    out, score = find_failures(Plan(s="fp16", out="fp16"), x)
    assert (score.stage, score.is_shown) == ("s", False) and reach(score, "shifted") == (0, 0)
    assert (out.stage, out.spread) == ("out", (Reach("out", 1, 1),))


@given(
    x=any_operands(),
    size=st.sampled_from([1.0, 300.0, 3000.0]),
    plan=st.sampled_from([EAGER, FLASH, replace(EAGER, max="none")]),
)
def test_every_broken_row_has_one_first_failure(x: Operands, size: float, plan: Plan) -> None:
    x, plan = replace(x, q=x.q.double() * size), plan.resolve("fp16")
    broken = ~forward.attend(plan, x).out.isfinite()
    failures = find_failures(plan, x)
    assert sum(reach(failure, "out")[0] for failure in failures) == int(broken.sum())
    assert sum(reach(failure, "out")[1] for failure in failures) == int(broken.any(-1).sum())
    for failure in failures:
        assert failure.elements >= failure.rows > 0 and len(failure.places) == min(failure.elements, 1000)

"""First failures against what theory says of public failure reports, seen in staged runs and inferred from outputs."""

import json
import math
from dataclasses import replace

import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from plain import any_operands, plain_attention
from torch import Tensor

from precision.explain.attribution import Attribution
from precision.explain.diagnosis import diagnose
from precision.explain.fingerprint import Fingerprint, Likeness
from precision.explain.first_failure import find_failures
from precision.explain.page import write_explanation
from precision.explain.question import Question
from precision.explain.show import render
from precision.formats import FORMATS, find_format
from precision.inputs.find import build_inputs
from precision.numerics.failure import Failure, Place, Reach
from precision.numerics.hazards import find_hazards
from precision.numerics.infer_failure import infer_failures
from precision.numerics.reference import attend
from precision.numerics.row_hazards import Kernel, RowHazards
from precision.operands import Operands
from precision.stages import forward
from precision.stages.plan import Plan
from precision.stages.presets import find_plan
from precision.sweep.measure import Bench
from precision.sweep.stopwatch import Stopwatch
from precision.zoo.case import zoo

EAGER, FLASH = find_plan("eager"), find_plan("flash")
SHIFTS, UNSHIFTED = Kernel(max_subtraction=True), Kernel(max_subtraction=False)


def case(name: str, dtype: str) -> Operands:
    return zoo.build(name).operands(dtype)


def one_key(v: float, plan: Plan) -> tuple[Failure, ...]:
    """With one key the output is v."""
    ones = torch.ones(1, 1, 1, 1, dtype=torch.float64)
    return find_failures(plan, Operands(ones, ones, v * ones))


def reach(failure: Failure, stage: str) -> tuple[int, int]:
    """Elements and rows at a later stage."""
    found = [(each.elements, each.rows) for each in failure.spread if each.stage == stage]
    return found[0] if found else (0, 0)


def first_index(hit: Tensor) -> tuple[int, ...]:
    return tuple(hit.nonzero()[0].tolist())


# Limits of formats


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


# Cases people met, stage by stage


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


# Inferred


@given(x=any_operands(), size=st.sampled_from([1.0, 50.0, 2000.0]))
def test_hazards_by_row_add_up_to_those_of_the_problem(x: Operands, size: float) -> None:
    x = replace(x, q=x.q.double() * size)
    right, fp16 = attend(x), FORMATS["fp16"]
    found = find_hazards(x, right, fp16)
    counts = {
        (stage.name, stage.kind): int(each.sum()) for stage, each in RowHazards(right, fp16, UNSHIFTED).counts.items()
    }
    assert counts["weights", "underflow"] == found.weights_zero
    assert counts["e", "overflow"] == found.exp_inf_unshifted
    assert counts["l", "overflow"] == found.rows_sum_inf_unshifted
    plain = plain_attention(x)
    harmful = plain.seen & ((plain.raw * x.scale_value >= 0) | (plain.weights > 2.0**-25))
    assert counts["s", "overflow"] == int(((plain.raw.abs() >= 65520) & harmful).sum())
    lost = RowHazards(right, fp16, SHIFTS).lost_weight
    assert float(lost.max()) == pytest.approx(found.weights_zero_mass_max, rel=1e-9, abs=1e-300)


def infer(x: Operands, out: Tensor, dtype: str = "fp16", kernel: Kernel = SHIFTS) -> tuple[Failure, ...]:
    return infer_failures(out, attend(x), find_format(dtype), kernel)


def test_a_right_output_rules_its_stages_out() -> None:
    x = case("scores-overflow", "fp16")
    found = infer(x, attend(x).out.half())
    assert [failure.stage for failure in found] == ["s", "weights"]
    assert not any(failure.is_shown for failure in found)


def test_broken_rows_are_explained_by_the_first_stage() -> None:
    x = case("scores-overflow[std=200]", "fp16")
    out = attend(x).out.half().fill_(torch.nan)
    failure = infer(x, out)[0]
    raw = x.q.double() @ x.k.double().mT
    assert (failure.stage, failure.kind, failure.inferred) == ("s", "overflow", True)
    assert failure.first.index == first_index(raw >= 65520) and failure.first.value == float(raw[failure.first.index])
    assert reach(failure, "out") == (out.numel(), failure.rows) and failure.rows == 2 * 128
    first = infer(x, out, kernel=Kernel(True, scale_first=True))[0]
    assert first.stage == "s" and first.first.index == first_index(raw / 8 >= 65520)


def test_a_stage_is_ruled_out_by_a_row_that_is_right() -> None:
    """Row 0 overflows before the scale and is right; row 1 overflows after it, too, and is NaN."""
    q = torch.tensor([[[[400.0], [2000.0]]]]).half()
    x = Operands(q, torch.full((1, 1, 2, 1), 400.0).half(), torch.ones(1, 1, 2, 1).half(), scale=0.25)
    found = infer(x, torch.tensor([[[[1.0], [math.nan]]]]).half())
    assert [(failure.stage, failure.is_shown) for failure in found] == [("scaled", True), ("s", False)]
    assert found[0].first == Place((0, 0, 1, 0), 2e5, math.inf)


def test_a_silent_zero_is_finite_and_wrong() -> None:
    x = case("silent-zero", "fp32")
    (failure,) = infer(x, torch.zeros_like(x.q), "fp32")
    assert (failure.stage, failure.wrong, failure.rows, failure.spread) == ("s", 8, 8, ())
    assert failure.first.value == pytest.approx(-1.6e41, rel=1e-6)
    assert failure.is_shown and "Finite and wrong: out in 8 rows" in failure.sentence


def test_an_exponential_that_overflows() -> None:
    x = Operands(torch.full((1, 1, 1, 1), 4.0), torch.tensor([[[[2.0], [3.0]]]]), torch.ones(1, 1, 2, 1), scale=1.0)
    broken = torch.full((1, 1, 1, 1), math.nan)
    failure = infer(x, broken, kernel=UNSHIFTED)[0]
    assert (failure.stage, failure.first.index) == ("e", (0, 0, 0, 1))
    assert failure.first.value == pytest.approx(math.exp(12))
    assert infer(x, broken)[0].stage == "unknown"  # with max-subtraction nothing explains it


def test_exponentials_that_all_vanish() -> None:
    x = Operands(torch.full((1, 1, 1, 1), -4.0), torch.full((1, 1, 2, 1), 5.0), torch.ones(1, 1, 2, 1), scale=1.0)
    failure = infer(x, torch.full((1, 1, 1, 1), math.nan), kernel=UNSHIFTED)[0]
    assert (failure.stage, failure.kind) == ("l", "underflow")
    assert failure.first.value == pytest.approx(2 * math.exp(-20))


def test_weights_that_were_lost() -> None:
    x = case("weights-underflow", "fp16")
    lost, kept = infer(x, torch.zeros_like(x.q)), infer(x, attend(x).out.half())
    for (failure,), wrong in ((lost, 8), (kept, 0)):
        assert (failure.stage, failure.kind, failure.elements, failure.wrong) == (
            "weights",
            "underflow",
            4095 * 8,
            wrong,
        )
        assert failure.weight == pytest.approx(1.028e-4, rel=1e-3) and failure.is_shown == bool(wrong)


def test_a_nan_that_got_lost_and_one_that_did_not() -> None:
    x = case("nan-lost[place=k]", "fp16")
    right = attend(x).out.half()
    (kept,), (lost,) = infer(x, right), infer(x, torch.zeros_like(right))
    assert (kept.kind, kept.stage, kept.first.index, kept.rows) == ("input", "k", (0, 0, 0, 0), 8)
    assert (lost.kind, lost.stage, lost.rows) == ("lost", "k", 8) and lost.is_shown
    assert str(kept) == "k: nan at (0, 0, 0, 0)" and str(lost) == "k: nan at (0, 0, 0, 0), lost"


def test_a_row_without_a_key_is_no_overflow() -> None:
    x = case("masked-row", "fp16")
    out = attend(x).out.half()
    assert infer(x, out) == ()
    out[0, 1, 2, 5] = torch.nan
    (failure,) = infer(x, out)
    assert (failure.kind, failure.stage, failure.first.index, failure.rows) == ("masked row", "out", (0, 1, 2, 5), 1)


def test_what_nothing_explains_is_unknown() -> None:
    x = case("gqa", "fp16")
    out = attend(x).out.half()
    out[0, 1, 2, 3] = math.inf
    (failure,) = infer(x, out)
    assert (failure.stage, failure.kind, failure.first.index) == ("unknown", "invalid", (0, 1, 2, 3))


# Text and rows


def test_a_failure_as_text() -> None:
    failure = Failure(
        "s", "overflow", (Place((0, 2, 17, 33), 72135.0, math.inf),), 65520.0, 3, 2, (Reach("out", 64, 1),)
    )
    assert str(failure) == "s: 72135 -> inf, limit 65520, at (0, 2, 17, 33)"
    assert failure.sentence == (
        "Overflow at s: 72135 -> inf, limit 65520, at (0, 2, 17, 33); 3 values in 2 rows. "
        "NaN or infinite: out 64 elements in 1 row."
    )
    assert failure.to_json()["places"] == [{"index": (0, 2, 17, 33), "value": 72135.0, "became": "inf"}]


@pytest.mark.parametrize(
    ("inputs", "method", "text"),
    [
        ("zoo/scores-overflow", "eager", "s: {:.6g} -> inf, limit 65520, at (0, 0, 0, 0)"),
        ("zoo/scores-overflow", "sdpa-math", None),
        ("zoo/masked-row", "eager", "out: 0 -> nan at (0, 0, 2, 0)"),
        ("zoo/weights-underflow", "eager", "weights: 2.51074e-08 -> 0, limit 2.98023e-08, at (0, 0, 0, 1)"),
        ("zoo/nan-lost", "eager", "q: nan at (0, 0, 0, 0)"),
    ],
)
def test_a_row_of_a_run_holds_its_first_failure(inputs: str, method: str, text: str | None) -> None:
    (problem,) = Question(inputs).problems(["fp16"])
    row = Bench(torch.device("cpu"), Stopwatch()).measure_case(problem, method, backward=False)
    x = build_inputs(inputs).operands("fp16")
    score = float(x.q[0, 0, 0].double() @ x.k[0, 0, 0].double())
    assert row.cells.get("first_failure") == (text and text.format(score))


# Explained kernels


@pytest.fixture(scope="module")
def nearest() -> Fingerprint:
    """As if the search had been made."""
    return Fingerprint("eager", (Likeness("fp16", "nearest", "all in fp16", 0.999, 1e-6, "staged[plan=eager]"),), ())


def test_the_diagnosis_of_a_kernel_that_fails(nearest: Fingerprint) -> None:
    (found,) = diagnose("eager", nearest.nearest, Question("zoo/scores-overflow"))
    cost, failure = found.sentences
    assert "no stage's share" in cost and "out is not finite" in cost
    assert failure.startswith("fp16: first failure: Inferred. Overflow at s: ")
    assert found.failures[0].first.index == found.plan_failures[0].first.index


def test_the_diagnosis_of_one_that_does_not(nearest: Fingerprint, tmp_path, capsys) -> None:
    question = Question(q_len=8, kv_len=16, d_k=16, scale="dk", backward=True, error="arithmetic")
    diagnoses = diagnose("eager", nearest.nearest, question)
    (found,) = diagnoses
    assert str(found.problem) == "normal b1 h2 n8x16 d16 fp16 mask=none scale=dk"
    assert isinstance(found.attribution, Attribution) and set(found.attribution.total) == {"out", "dq", "dk", "dv"}
    most = max(found.attribution.of("out"), key=lambda part: part.share)
    assert f"fp16: {most.group} costs most" in found.sentences[0] and "first failure: none" in found.sentences[1]
    render(nearest, diagnoses, lines=3)
    assert capsys.readouterr().out.startswith("eager in fp16 behaves like: all in fp16")
    pages = write_explanation(nearest, diagnoses, tmp_path, question.command("eager", ["fp16"]))
    text = pages.markdown.read_text()
    assert "--q-len 8 --kv-len 16 --d-k 16 --error arithmetic --backward" in text and "attribution-fp16.svg" in text
    assert len(pd.read_csv(pages.measured)) == len(found.attribution.contributions)
    json.dumps(found.to_json(), allow_nan=False)


def test_a_kernel_that_refuses_the_problem(nearest: Fingerprint) -> None:
    (found,) = diagnose("sdpa-efficient", nearest.nearest, Question(q_len=4, kv_len=4, d_k=8))
    assert isinstance(found.failures, str) and "does not take this problem" in found.sentences[1]

"""First failures inferred from outputs alone, against what theory says of cases that people met."""

import math
from dataclasses import replace

import pytest
import torch
from failing_calls import SHIFTS, UNSHIFTED, case, first_index, reach
from hypothesis import given
from hypothesis import strategies as st
from plain import any_operands, plain_attention
from torch import Tensor

from precision.formats import FORMATS, find_format
from precision.numerics.failure import Failure, Place
from precision.numerics.hazards import find_hazards
from precision.numerics.infer_failure import infer_failures
from precision.numerics.reference import attend
from precision.numerics.row_hazards import Kernel, RowHazards
from precision.operands import Operands


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

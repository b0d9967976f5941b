"""Marks on rows made by hand, each fault beside the row that is right by a little."""

import math

import pandas as pd
import pytest

from precision.formats import FORMATS
from precision.zoo.allowed import wide_state
from precision.zoo.marks import MEANINGS, mark, marks
from precision.zoo.table import zoo_reasons, zoo_table

U = {name: format.unit_roundoff for name, format in FORMATS.items()}


def row(**cells):
    """A right row of an ordinary problem in fp16: logits up to 4, an output of rms 1, one rounding off."""
    return {
        "status": "ok", "note": None, "case": "c", "problem": "p", "inputs": "zoo/residue", "method": "sdpa-flash",
        "dtype": "fp16", "max_subtraction": True, "scale_value": 0.25, "d_k": 16, "kv_len": 8, "rows": 16,
        "out_max_abs": 1e-3, "out_rms": 3e-4, "out_rel_l2": 3e-4, "out_compared": 256,
        "logit_std": 1.0, "logit_max": 4.0, "raw_max": 16.0, **cells,
    }  # fmt: skip


def eager(**cells):
    return row(method="eager", **cells)


def wrong(rel_l2=0.5, **cells):
    return row(**{"out_rel_l2": rel_l2, "out_rms": rel_l2, "out_max_abs": 3 * rel_l2, **cells})


def test_right():
    assert mark(row()).symbol == mark(row(), eager()).symbol == "right"
    assert mark(row(out_rel_l2=0.0, out_rms=0.0, out_max_abs=0.0), eager(out_max_abs=0.0)).symbol == "right"


@pytest.mark.parametrize("status", ["refused", "absent", "raised", "timeout", "crashed"])
def test_a_hole_is_its_status_and_the_first_line_of_its_reason(status):
    found = mark({"status": status, "note": "no kernel here\nand pages more"})
    assert (found.symbol, found.reason) == (status, "no kernel here")


# How far off is right


def test_a_wide_state_rounds_twice_and_sums_in_fp32():
    """2 u of fp16, and u_32 (sqrt(16) 1 + sqrt(2 x 8)) = 2^-21."""
    assert wide_state(row()) == pytest.approx(2 * 2**-11 + 2**-21, rel=1e-12)
    assert wide_state(row(dtype="fp32")) == pytest.approx(2 * 2**-24 + 2**-21, rel=1e-12)
    assert wide_state(row(dtype="fp64")) == pytest.approx(2 * 2**-53 + 8 * 2**-53, rel=1e-12)
    # Scores that fp32 does not know to within 1 excuse nothing.
    assert wide_state(row(logit_std=2.0**22)) == pytest.approx(2 * 2**-11 + 2**-22, rel=1e-12)


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
def test_errors_beyond_a_wide_state_are_limits_up_to_twice_those_of_eager(dtype):
    wide = wide_state(row(dtype=dtype))
    yardstick = eager(dtype=dtype, out_rel_l2=10 * wide, out_rms=10 * wide, out_max_abs=40 * wide)
    for factor, symbol in ((0.99, "right"), (1.01, "limits"), (20.9, "limits"), (21.1, "wrong")):
        error = factor * wide
        found = mark(row(dtype=dtype, out_rel_l2=error, out_rms=error, out_max_abs=3 * error), yardstick)
        assert found.symbol == symbol, factor
        assert (f"every stage is rounded to {dtype}" in found.reason) == (symbol == "limits")


def test_without_eager_the_first_order_bound_stands_in():
    """u 2 (4 x 16/4 + 2 x 4) = 48 u beyond a wide state."""
    assert mark(wrong(47 * U["fp16"])).symbol == "limits"
    assert mark(wrong(51 * U["fp16"])).symbol == "wrong"


def test_one_wild_element_does_not_hide_in_the_norm():
    """Its allowance: twice eager's largest error, and a wide state at the largest of 256 normal elements, 3.33."""
    allowed = 2 * 1e-3 + wide_state(row()) * math.sqrt(2 * math.log(256))
    assert mark(row(out_max_abs=0.99 * allowed), eager()).symbol == "right"
    assert mark(row(out_max_abs=1.01 * allowed), eager()).symbol == "wrong"
    assert mark(row(out_max_abs=1.01 * allowed), eager(out_max_abs=2e-3)).symbol == "right"


def test_eager_excuses_nothing_where_the_scores_do_not_fit():
    for hazard in (
        {"scores_over_before_scale": 3},
        {"scores_over_after_scale": 3},
        {"weights_zero_mass_max": 1e-4},
        {"logit_max": 1.01 * 2**11},
        {"raw_max": 1.01 * 2**13},
    ):
        assert mark(wrong(**hazard), eager(**hazard, out_rel_l2=0.5, out_max_abs=1.5)).symbol != "limits", hazard
        assert mark(row(**hazard), eager(**hazard, out_rel_l2=0.5, out_max_abs=1.5)).symbol == "right", hazard
    fitting = {"logit_max": 0.99 * 2**11, "raw_max": 0.99 * 2**13}
    assert mark(wrong(**fitting), eager(**fitting, out_rel_l2=0.5, out_max_abs=1.5)).symbol == "limits"


# Faults and their causes


def test_a_fault_of_masking_is_never_an_overflow():
    hazards = {"scores_over_before_scale": 9, "scores_over_after_scale": 9, "rows_nan": 0, "rows_nonfinite": 0}
    found = mark(row(rows_masked=2, rows_masked_wrong=1, dv_nonfinite=128, **hazards))
    assert found.symbol == "not 0"
    assert "1 of 2 rows" in found.reason and "masking" in found.reason and "128 elements of dv" in found.reason
    assert "overflow" not in found.reason
    assert mark(row(rows_masked=2, rows_masked_wrong=0)).symbol == "right"


def test_gradients_of_masked_rows_must_be_finite():
    found = mark(row(rows_masked=2, rows_masked_wrong=0, dq_nonfinite=32))
    assert found.symbol == "not 0" and "32 elements of dq" in found.reason
    assert mark(row(rows_masked=2, dq_nonfinite=0, dk_nonfinite=0, dv_nonfinite=0)).symbol == "right"


def test_nothing_to_compute_is_right():
    empty = {"rows": 0, "out_compared": 0, "out_max_abs": pd.NA, "out_rel_l2": pd.NA, "out_rms": pd.NA}
    assert mark(row(**empty, rows_masked=16, rows_masked_wrong=0)).symbol == "right"
    assert mark(row(**empty, rows_masked=16, rows_masked_wrong=16)).symbol == "not 0"
    assert mark(row(**empty)).symbol == "right"


def test_nan_that_must_be_there_is_right_and_lost_when_it_is_not():
    due = {"rows_nan_due": 1, "rows_nan": 1, "rows_nonfinite": 1, "rows_nan_lost": 0}
    assert mark(row(**due)).symbol == "right"
    lost = mark(row(**{**due, "rows_nan": 0, "rows_nonfinite": 0, "rows_nan_lost": 1}))
    assert (lost.symbol, lost.reason) == ("NaN lost", "1 of 1 rows that must be NaN are finite")
    spread = mark(row(**{**due, "rows_nan": 3, "rows_nonfinite": 3}))
    assert spread.symbol == "NaN" and spread.reason.startswith("2 of 16 rows")


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        ({"scores_over_before_scale": 27000}, "27000 scores overflow before the scale, none after it"),
        (
            {"scores_over_before_scale": 54860, "scores_over_after_scale": 6802},
            "54860 scores overflow before the scale and 6802 after it",
        ),
        ({"max_subtraction": False, "rows_sum_inf_unshifted": 16}, "exponentials overflow, since no maximum"),
        ({"max_subtraction": False, "rows_sum_inf_unshifted": 0}, "exponentials of a row underflow"),
        ({"rows_sum_inf_unshifted": 16}, "none that the exact scores show"),
        ({"method": "eager[scale=before]", "scores_over_before_scale": 5}, "none that the exact scores show"),
    ],
)
def test_nan_has_the_cause_that_the_exact_scores_give(cells, words):
    found = mark(row(rows_nonfinite=16, rows_nan=16, rows_nan_due=0, **cells))
    assert found.symbol == "NaN"
    assert found.reason.startswith("16 of 16 rows: ") and words in found.reason


@pytest.mark.parametrize(
    ("cells", "symbol", "words"),
    [
        ({"scores_over_after_scale": 64}, "silent zero", "64 scores overflow"),
        ({"scores_over_before_scale": 64}, "silent zero", "64 scores overflow"),
        ({"weights_zero_mass_max": 1.03e-4}, "weights lost", "0.0001 of a row's weight"),
        # One rounding to fp16 of 65504 is 2^-11 65504 = 32.0.
        ({"logit_max": 65504.0}, "wrong", "moves the scores by up to 32"),
        ({"logit_max": 65504.0, "weights_zero_mass_max": 1e-40}, "wrong", "moves the scores by up to 32"),
        ({}, "wrong", "more than rounding"),
    ],
)
def test_wrong_and_finite_has_its_cause(cells, symbol, words):
    found = mark(wrong(**cells))
    assert found.symbol == symbol
    assert words in found.reason and "relative error 0.5" in found.reason


def test_every_symbol_of_a_measured_row_has_a_meaning():
    rows = [
        row(), wrong(), wrong(scores_over_after_scale=1), wrong(weights_zero_mass_max=1e-3), wrong(40 * U["fp16"]),
        row(rows_nonfinite=1), row(rows_nan_due=1, rows_nan_lost=1), row(rows_masked=1, rows_masked_wrong=1),
    ]  # fmt: skip
    assert {mark(cells).symbol for cells in rows} == set(MEANINGS)


# What else is to say


def test_the_first_call_is_told_beside_the_warm_ones():
    timed = {"inputs": "zoo/first-call", "latency": 2e-5, "latency_first": 1e-3}
    found = mark(row(**timed))
    assert found.symbol == "right"
    assert found.reason == "the first call took 1 ms, 50 times a warm one; latency excludes it"
    assert mark(row(**{**timed, "inputs": "zoo/gqa"})).reason == ""
    assert mark(row(**{**timed, "latency": None})).reason == ""


def test_what_assert_close_refuses_is_told_beside_the_mark():
    refused = {"inputs": "zoo/assert-close", "out_not_close": 14}
    said = "torch.testing.assert_close refuses 5.5% of the elements by default"
    assert mark(row(**refused)).reason == said
    both = mark(wrong(47 * U["fp16"], **refused))
    assert both.symbol == "limits" and both.reason.endswith(f"fp16; {said}")
    assert mark(row(**{**refused, "out_not_close": 0})).reason == ""


def test_a_warning_of_the_mask_has_a_line_of_its_own():
    rows = [row(dtype=dtype, method=method, mask_warning="Beware.") for dtype in ("fp16", "bf16") for method in "ab"]
    assert zoo_reasons(frame(*rows)).to_numpy().tolist() == [["residue", "warning", "", "fp16 bf16", "Beware."]]


# Tables


def frame(*rows):
    cells = [{**r, "case": str(index)} for index, r in enumerate(rows)]
    return pd.DataFrame(cells).convert_dtypes()


def test_the_yardstick_is_eager_on_the_same_problem():
    off = wrong(51 * U["fp16"])
    loose = eager(out_rel_l2=60 * U["fp16"], out_rms=60 * U["fp16"], out_max_abs=1.0)
    assert marks(frame(off)).symbol.tolist() == ["wrong"]
    assert marks(frame(off, loose)).symbol.tolist() == ["limits", "limits"]
    assert marks(frame(off, {**loose, "problem": "another"})).symbol.tolist()[0] == "wrong"
    not_a_number = {**loose, "out_compared": 0, "out_rel_l2": None, "out_rms": None, "out_max_abs": None}
    assert marks(frame(off, not_a_number)).symbol.tolist()[0] == "wrong"


def test_rows_of_other_inputs_are_left_out():
    assert marks(frame(row(inputs="normal"), row())).case.tolist() == ["residue"]
    assert marks(frame(row(inputs="normal"))).empty
    assert zoo_table(frame(row(inputs="normal"))).empty and zoo_reasons(frame(row(inputs="normal"))).empty


def test_dtypes_with_the_same_marks_share_a_line():
    rows = [row(dtype=dtype, method=method, problem=dtype) for dtype in ("fp32", "bf16") for method in ("a", "b")]
    rows += [wrong(dtype="fp16", method="a", problem="h"), row(inputs="zoo/gqa[q_heads=8]", method="b", problem="g")]
    rows[0] = row(dtype="fp32", method="a", problem="fp32", out_rel_l2=1e-8, out_rms=1e-8, out_max_abs=1e-7)
    rows[1] = {**rows[0], "method": "b"}
    table = zoo_table(frame(*rows))
    assert table.columns.tolist() == ["case", "dtype", "a", "b"]
    assert table.to_numpy().tolist() == [
        ["residue", "fp32 bf16", "ok", "ok"],
        ["residue", "fp16", "wrong", ""],
        ["gqa[q_heads=8]", "fp16", "", "ok"],
    ]


def test_alike_reasons_share_a_line():
    rows = [row(dtype=dtype, method=method, rows_nan_due=1, rows_nan_lost=1) for dtype in U for method in ("a", "b")]
    reasons = zoo_reasons(frame(*rows, row()))
    assert reasons.to_numpy().tolist() == [
        ["residue", "NaN lost", "a b", "fp64 fp32 fp16 bf16", "1 of 1 rows that must be NaN are finite"]
    ]

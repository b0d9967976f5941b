"""The sentences of the verdict, against numbers computed by hand; each can come out differently."""

import json

from made_rows import four_cells, make_row, make_rows, plain, timed

from precision.report.verdict import judge
from precision.report.verdict.ablation import captured_incidence, cost_of_no_scale, drawn_incidence, lost_weights
from precision.report.verdict.methods import best_methods, input_cast, mathematics
from precision.report.verdict.nonfinite import nonfinite_methods


def test_drawn_incidence_names_the_dtype_that_suffers():
    rows = make_rows(*four_cells([0, 3, 0, 80]), *four_cells([0, 0, 0, 8], dtype="bf16"))
    assert plain(drawn_incidence(rows)) == (
        "fp16 on drawn inputs: 80 % of the rows are not finite with neither scale nor max-subtraction, "
        "3.0 % with the scale alone, 0 % with max-subtraction alone."
    )


def test_drawn_incidence_pools_rows_not_cases():
    # 80 of 100 and 0 of 300: 20 % of the rows, although 40 % is the mean over the cases.
    rows = make_rows(*four_cells([0, 0, 0, 80]), *four_cells([0, 0, 0, 0], d_k=16, rows=300))
    assert "20 %" in plain(drawn_incidence(rows))


def test_drawn_incidence_of_a_harmless_run():
    assert "no dtype of this run needs" in drawn_incidence(make_rows(*four_cells([0, 0, 0, 0])))


def test_an_incomplete_ablation_says_nothing():
    rows = make_rows(*four_cells([0, 3, 0, 80])[:3])
    assert drawn_incidence(rows) is None
    assert captured_incidence(rows) is None
    assert cost_of_no_scale(rows) is None
    assert lost_weights(rows) is None


def test_captured_incidence_says_where_the_scale_is_not_enough():
    calls = [
        cell
        for call, counts in enumerate([[0, 7, 0, 47], [0, 0, 0, 93]])
        for cell in four_cells(counts, inputs=f"captured[call={call}]", source=f"layer.{call}")
    ]
    assert plain(captured_incidence(make_rows(*calls))) == (
        "fp16 on real tensors: 70 % with neither; with the scale alone still 3.5 % (7 of 100 rows in layer.0), "
        "with max-subtraction alone 0 %."
    )
    assert "the scale alone keeps every row finite" in captured_incidence(make_rows(*calls[4:]))


def test_cost_of_no_scale_is_the_ratio_of_the_shifted_cells():
    cells = four_cells([0, 0, 0, 100])
    cells[2] |= {"out_rms": 40 * cells[0]["out_rms"], "out_rel_l2": 2 * cells[0]["out_rel_l2"]}
    sentence = plain(cost_of_no_scale(make_rows(*cells)))
    assert "the rms error of eager by 40 × in fp16 on drawn inputs" in sentence
    assert "relative to the output, which grows too, by 2 ×" in sentence


def test_lost_weights():
    cells = four_cells([0, 0, 0, 100])
    for cell in cells[2:]:
        cell |= {"weights_zero": 850, "weights_zero_mass_max": 3e-6}
    assert plain(lost_weights(make_rows(*cells))) == (
        "Without the scale 85 % of the weights round to exactly 0 in fp16, with it 0 %; "
        "a row loses at most 3e-6 of its weight that way."
    )
    assert lost_weights(make_rows(*four_cells([0, 0, 0, 100]))) is None


def test_best_methods_trade_or_not():
    trade = make_rows(timed("exact", 1e-4, 2e-3), timed("quick", 1e-3, 1e-3))
    assert plain(best_methods(trade)) == (
        "In fp16 exact is the most accurate and quick the fastest (0.5 × the latency, 10 × the error)."
    )
    both = make_rows(timed("slow", 1e-4, 2e-3), timed("quick", 1.05e-4, 1e-3))
    assert best_methods(both) == "Fastest, and as accurate as any of 2 timed methods: quick in fp16."
    assert best_methods(make_rows(timed("alone", 1e-4, 1e-3))) is None
    assert best_methods(make_rows(make_row())) is None


def test_a_busy_machine_ranks_nobody():
    """Of nine samples the second and the eighth are the 95 % interval of the median (binomial): 2 to 8 around 5."""
    scattered = json.dumps([1e-3 * place for place in (9, 1, 5, 3, 7, 2, 8, 4, 6)])
    rows = make_rows(*(make_row(method=name, out_rel_l2=1e-3, latency_samples=scattered) for name in ("one", "other")))
    assert "wider than 1.2 × their median, so no method is called the fastest" in plain(best_methods(rows))


def test_methods_that_are_not_finite_are_named_with_their_cases():
    rows = make_rows(
        make_row(method="bad", rows_nonfinite=3, rows_nan_due=0),
        make_row(method="bad", d_k=16, rows_nonfinite=0, rows_nan_due=0),
        make_row(method="due", rows_nonfinite=3, rows_nan_due=3),
    )
    assert plain(nonfinite_methods(rows)) == (
        "Rows are NaN or infinite where the right ones are finite: bad in 1 of 2 cases; 1 method in none."
    )
    assert nonfinite_methods(make_rows(make_row(rows_nan_due=0))) is None
    assert nonfinite_methods(make_rows(*four_cells([0, 3, 0, 80]))) is None  # the ablation says it better


def test_input_cast_is_one_minus_the_squared_ratio():
    rows = make_rows(make_row(out_rms=3e-4, out_total_rms=5e-4), make_row(method="other", out_rms=4e-4))
    assert "64 % for eager and 36 % for other" in plain(input_cast(rows))
    assert input_cast(make_rows(make_row(dtype="fp32"))) is None


def test_mathematics_passes_judgement():
    right = make_row(dtype="fp64", out_max_abs=3e-15)
    assert "all 1 method compute the same function: the largest error of 1 case is 3e-15" in mathematics(
        make_rows(right)
    )
    wrong = make_row(dtype="fp64", method="other", mask="causal", out_max_abs=1e-3)
    assert "other is off by 0.001 (mask causal)" in mathematics(make_rows(right, wrong))
    broken = make_row(dtype="fp64", method="other", out_max_abs=None)
    assert "other is off by inf" in mathematics(make_rows(right, broken))


def test_any_run_has_a_verdict():
    assert judge(make_rows(make_row(out_rel_l2=0.5, dtype="fp32"))) == (
        "The largest relative error is 0.5, of eager in fp32 on normal.",
    )
    assert judge(make_rows(make_row(out_rel_l2=None, dtype="fp32"))) == (
        "Not one output element of this run is finite.",
    )
    assert judge(make_rows()) == ("Nothing was measured in this run.",)

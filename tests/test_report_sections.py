"""The sections of a report: what their tables, sentences and figures hold, against numbers computed by hand."""

import json
import xml.etree.ElementTree as ElementTree

import matplotlib.figure
import pytest
from made_rows import RECORD, four_cells, make_frame_of, make_row, make_rows, plain, timed

from precision.report.blocks import Field, Table
from precision.report.build import build_report
from precision.report.lines import draw_lines
from precision.report.rows import label_settings, width_family
from precision.report.sections import (
    captured,
    environment,
    gradients,
    head_width,
    holes,
    latency,
    ran,
    underflow,
    worst,
)
from precision.report.source import Source


def test_a_case_in_two_sweeps_counts_once_and_keeps_its_latency():
    row = make_row()
    rows = make_rows(row, {**row, "sweep": "t", "latency_samples": json.dumps([1.0, 2.0, 3.0])})
    assert len(rows) == 1
    assert rows["latency"].tolist() == [2.0]


def test_labels_name_what_differs_and_nothing_else():
    rows = make_rows(
        make_row(),
        make_row(q_len=20),
        make_row(d_k=32),
        make_row(inputs="captured[call=3,file=mine]"),
        make_row(mask="causal", inputs="large"),
        make_row(inputs="large"),
    )
    assert label_settings(rows).tolist() == [
        "normal, d 64, n 10",
        "normal, d 64, n 20",
        "normal, d 32",
        "mine 3, d 64",
        "large, d 64, mask causal",
        "large, d 64, mask none",
    ]


def test_width_family_is_the_largest_set_in_which_only_d_k_varies():
    rows = make_rows(
        *(make_row(d_k=d, d_v=d, seed=1) for d in (8, 16)),
        *(make_row(d_k=d, d_v=d) for d in (8, 16, 32)),
        make_row(d_k=64, d_v=64, q_len=20),
    )
    assert width_family(rows)["d_k"].tolist() == [8, 16, 32]
    assert width_family(make_rows(make_row())).empty


def table_of(section):
    return next(block for block in section.blocks if isinstance(block, Table))


def test_tables_refuse_ragged_rows():
    with pytest.raises(ValueError, match="needs 1 cells"):
        Table("t", (Field("a"),), ((1, 2),))


@pytest.mark.parametrize(
    ("raw_std", "sentence"),
    [(29.9, "does not hold in 1 of 1 calls: the raw scores have 5.29 times"), (5.7, "assumption holds")],
)
def test_unit_variance_is_judged_against_the_root_of_d_k(raw_std, sentence):
    # 29.9 / sqrt(32) = 5.2856; 5.7 / sqrt(32) = 1.0076.
    row = make_row(inputs="captured[call=0]", source="layer.0", d_k=32, raw_std=raw_std, raw_max=412.0)
    section = captured.make_section(Source(RECORD, make_frame_of(row)))
    assert sentence in section.sentences[0]
    assert table_of(section).rows == (("minilm 0, d 32", "layer.0", raw_std, 32**0.5, 412.0, 1.0, 1.0),)


def test_holes_are_grouped_by_reason():
    hole = {name: value for name, value in make_row().items() if name not in ("rows", "out_rms")}
    refused = [{**hole, "status": "refused", "note": "no", "dtype": dtype} for dtype in ("fp32", "fp16")]
    section = holes.make_section(
        Source(RECORD, make_frame_of(make_row(), *refused, {**hole, "status": "raised", "note": "boom"}))
    )
    assert section.sentences[0].startswith("3 cases of 4 gave no numbers")
    assert [row[:5] for row in table_of(section).rows] == [
        ("refused", "eager", 2, "s", "fp32 and fp16"),
        ("raised", "eager", 1, "s", "fp16"),
    ]
    assert [row[5] for row in table_of(section).rows] == ["no", "boom"]
    assert holes.make_section(Source(RECORD, make_frame_of(make_row()))) is None


def test_overhead_is_wall_over_kernels_and_references():
    section = environment.make_section(Source(RECORD, make_frame_of(make_row())))
    assert plain(section.sentences[0]) == "The run took 10 s: 2 times its kernels and references."
    times = next(block for block in section.blocks if isinstance(block, Table) and "time" in block.caption)
    assert times.rows == (
        ("kernels", 4.0, 0.4), ("rest", 3.0, 0.3), ("errors", 2.0, 0.2), ("references", 1.0, 0.1)
    )  # fmt: skip


def test_latency_table_compares_with_the_yardstick():
    rows = [timed("sdpa-math", 1e-4, 2e-3), timed("eager", 1e-3, 1e-3)]
    section = latency.make_section(Source(RECORD, make_frame_of(*rows)))
    assert [(row[2], row[3], row[6]) for row in table_of(section).rows] == [
        ("sdpa-math", 2e-3, None),
        ("eager", 1e-3, "0.50 × [0.50, 0.50]"),
    ]


def test_gradients_say_what_ran_what_was_lost_and_what_it_cost():
    passes = {"backward": "ok", "out_compared": 10, "dq_nonfinite": 0, "dk_nonfinite": 0, "dv_nonfinite": 0}
    samples = {"latency_samples": json.dumps([1e-3] * 9), "backward_latency_samples": json.dumps([3e-3] * 9)}
    rows = [
        make_row(method="sdpa-math", **passes, **samples),
        make_row(**{**passes, "dv_nonfinite": 4}, **{**samples, "backward_latency_samples": json.dumps([6e-3] * 9)}),
        make_row(method="flex", backward="refused: no backward pass on a CPU"),
    ]
    section = gradients.make_section(Source(RECORD, make_frame_of(*rows)))
    assert [plain(sentence) for sentence in section.sentences] == [
        "The backward pass ran in 2 of 3 cases.",
        "Finite output, gradients that are not: 1 case.",
        "Both passes take 3 to 6 × the time of the forward pass alone.",
    ]
    ran, holes_ = section.blocks
    assert [row[7:] for row in ran.rows] == [(0, 3e-3, None), (4, 6e-3, "2.00 × [2.00, 2.00]")]
    assert holes_.rows == (("flex", 1, "refused: no backward pass on a CPU"),)
    assert gradients.make_section(Source(RECORD, make_frame_of(make_row()))) is None


def test_what_ran_is_grouped_by_method_and_operator():
    rows = [make_row(method="sdpa", ran=name, dtype=dtype) for name, dtype in (("flash", "fp16"), ("math", "fp32"))]
    section = ran.make_section(Source(RECORD, make_frame_of(*rows, make_row(ran=""))))
    assert section.sentences == ("Torch chose between several kernels for sdpa.",)
    assert table_of(section).rows == (("sdpa", "flash", 1, "fp16"), ("sdpa", "math", 1, "fp32"))
    assert ran.make_section(Source(RECORD, make_frame_of(make_row()))) is None


def test_growth_over_d_k():
    rows = [make_row(d_k=d, d_v=d, out_rel_l2=error) for d, error in ((16, 1e-3), (64, 9e-3), (256, 4e-3))]
    section = head_width.make_section(Source(RECORD, make_frame_of(*rows)))
    assert plain(section.sentences[0]) == (
        "From d_k 16 to 256 the relative error changes by 4 × with the scale; it rises most in eager in fp16."
    )


def test_underflow_names_the_worst_row():
    rows = [make_row(weights_zero=1, weights_zero_mass_max=mass, d_k=d) for mass, d in ((1e-7, 64), (2e-2, 32))]
    section = underflow.make_section(Source(RECORD, make_frame_of(*rows)))
    assert section.sentences[0].startswith("The worst row loses 0.02 of its weight of 1 (fp16, normal, d_k 32")
    assert underflow.make_section(Source(RECORD, make_frame_of(make_row()))) is None


@pytest.mark.parametrize(
    ("cells", "cause"),
    [
        ({"scores_over_before_scale": 1, "rows_sum_inf_unshifted": 1}, "q·k overflows before the scale"),
        ({"scores_over_after_scale": 1}, "the scaled logits overflow"),
        ({"max_subtraction": False, "rows_sum_inf_unshifted": 1}, "an exponential overflows"),
        ({"rows_sum_inf_unshifted": 1}, "none that the exact scores show"),
        ({"backend": "fused", "scores_over_before_scale": 1}, "none that the exact scores show"),
    ],
)
def test_causes(cells, cause):
    assert worst.cause_of(make_rows(make_row(rows_nonfinite=1, **cells)).iloc[0]).startswith(cause)


def svg_texts(figure):
    return ["".join(node.itertext()) for node in ElementTree.fromstring(figure.svg).iter() if node.tag.endswith("text")]


def test_the_heat_map_shows_every_cell():
    cells = [*four_cells([0, 3, 0, 80]), *four_cells([0, 0, 0, 100], d_k=128, d_v=128)]
    for cell in cells:
        if cell["rows_nonfinite"] == 100:
            cell |= {"out_rel_l2": None}
    figures = {figure.name: figure for figure in build_report(Source(RECORD, make_frame_of(*cells))).figures}
    assert svg_texts(figures["ablation-incidence"]).count("0") == 5
    assert {"3.0", "80", "100", "normal, d 64", "normal, d 128"} <= set(svg_texts(figures["ablation-incidence"]))
    assert svg_texts(figures["ablation-error"]).count("1e-3") == 7
    assert svg_texts(figures["ablation-error"]).count("none") == 1


def test_lines_hold_the_values():
    axes = matplotlib.figure.Figure().subplots()
    rows = make_rows(*(make_row(d_k=d, d_v=d, out_rel_l2=error) for d, error in ((32, 2e-3), (16, 1e-3))))
    draw_lines(axes, rows, "out_rel_l2", ["fp16"])
    (line,) = axes.lines
    assert line.get_xdata().tolist() == [16, 32]
    assert line.get_ydata().tolist() == [1e-3, 2e-3]

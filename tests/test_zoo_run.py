"""The zoo on the backends of a CPU: every case gets a row and a mark, and the known faults are found by themselves."""

from contextlib import contextmanager
from dataclasses import dataclass, replace

import pandas as pd
import pytest
import torch
from made_rows import RECORD

from precision.backends.backend import backends
from precision.formats import FORMATS
from precision.numerics.reference import attend
from precision.records.columns import COLUMNS
from precision.records.frame import make_frame
from precision.report.build import build_report
from precision.report.source import Source
from precision.sweep.config import parse_config, read_config_text
from precision.sweep.grid import plan
from precision.sweep.measure import Bench
from precision.sweep.stopwatch import Stopwatch
from precision.zoo.case import zoo
from precision.zoo.marks import MEANINGS, marks
from precision.zoo.table import zoo_reasons, zoo_table

HOLES = {"refused", "absent", "raised"}
UNSHIFTED = "eager[max_subtraction=false]"
TOLD = {"first-call", "assert-close"}  # there is something to say of a right output, too


def measure(tasks):
    bench = Bench(torch.device("cpu"), Stopwatch())
    with torch.no_grad():
        rows = [row.cells for task in tasks for row in bench.measure(task, {})]
    return make_frame([tuple(cells.get(column.name) for column in COLUMNS) for cells in rows])


def shipped():
    """The configuration that ships, without what takes seconds to compile and with few problems for the rest."""
    tasks = plan(parse_config(read_config_text("zoo")))
    slow = {"flex", "flex[compiled=false]", "compiled", "jax", "onnxruntime"}
    few = {"zoo/scores-overflow", "zoo/nan-lost"}
    for task in tasks:
        keep = task.problem.inputs in few and task.problem.dtype == "fp16"
        methods = tuple(m for m in task.methods if m not in slow or (keep and m != "flex"))
        if methods:
            yield replace(task, methods=methods)


@pytest.fixture(scope="module")
def frame():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # small problems: a second thread only waits
    try:
        return measure(shipped())
    finally:
        torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def found(frame):
    return marks(frame)


def symbol(found, case, dtype, method):
    (one,) = found[(found["case"] == case) & (found["dtype"] == dtype) & (found["method"] == method)].itertuples()
    return one.symbol


def test_every_case_and_backend_has_a_row_with_a_mark(frame, found):
    assert len(found) == len(frame) == sum(len(task.methods) for task in shipped())
    assert set(found["symbol"]) <= {*MEANINGS, *HOLES}
    assert (found.loc[found["symbol"] != "right", "reason"] != "").all()
    assert set(found.loc[(found["symbol"] == "right") & (found["reason"] != ""), "case"]) <= TOLD
    assert not found["reason"].str.contains("\n").any()


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
def test_flash_loses_a_nan_query_when_keys_are_few(found, dtype):
    assert symbol(found, "nan-lost", dtype, "sdpa-flash") == "NaN lost"
    assert symbol(found, "scale-values[scale=nan]", dtype, "sdpa-flash") == "NaN lost"
    assert symbol(found, "nan-lost[kv_len=64]", dtype, "sdpa-flash") == "right"
    assert symbol(found, "nan-lost", dtype, "sdpa-math") == "right"


def test_fp16_flash_loses_weights(found):
    assert symbol(found, "weights-underflow", "fp16", "sdpa-flash") == "weights lost"
    assert symbol(found, "weights-underflow", "fp16", "sdpa-math") == "right"


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_flash_overflows_before_the_scale(found, dtype):
    assert symbol(found, "scale-order", dtype, "sdpa-flash") == "NaN"
    assert symbol(found, "scale-order", dtype, "sdpa-math") == "right"
    assert symbol(found, "scale-order", dtype, "eager[scale=before]") == "right"


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("method", ["sdpa", "sdpa-math", "sdpa-flash"])
def test_the_silent_zero_is_heard(found, dtype, method):
    assert symbol(found, "silent-zero", dtype, method) == "silent zero"
    assert symbol(found, "silent-zero", "fp16", method) == "right"  # an fp32 state holds these


@pytest.mark.parametrize(("dtype", "mark"), [("fp16", "NaN"), ("bf16", "wrong")])
def test_math_with_the_reduced_flag_is_wrong(found, dtype, mark):
    for case in ("reduced-flag", "scores-overflow[std=200.0]"):
        assert symbol(found, case, dtype, "sdpa-math-reduced") == mark
        assert symbol(found, case, dtype, "sdpa-math") == "right"


def test_the_scale_first_rescues_what_fits_after_it(found):
    for std, rescued in (("scores-overflow", "right"), ("scores-overflow[std=200.0]", "NaN")):
        assert symbol(found, std, "fp16", "eager") == "NaN"
        assert symbol(found, std, "fp16", UNSHIFTED) == "NaN"
        assert symbol(found, std, "fp16", "eager[scale=before]") == rescued


def test_compiled_eager_is_not_eager(frame):
    rows = frame[(frame["inputs"] == "zoo/scores-overflow") & (frame["dtype"] == "fp16")].set_index("method")
    assert rows.loc["eager", "rows_nan"] == rows.loc["eager", "rows"]
    assert rows.loc["compiled", "rows_nan"] == 0


def test_masked_rows_in_naive_softmax_spoil_all_of_dv(frame, found):
    rows = frame[(frame["inputs"] == "zoo/masked-row") & (frame["dtype"] == "fp32")].set_index("method")
    assert rows.loc["eager", "dv_nonfinite"] == 2 * 4 * 16
    assert rows.loc["sdpa-math", "dv_nonfinite"] == 0
    assert symbol(found, "masked-row", "fp32", "eager") == "not 0"
    assert symbol(found, "masked-row", "fp32", "sdpa-math") == "right"


def test_a_mask_in_another_dtype_is_refused(frame, found):
    for case, dtype in (("mask-dtype", "bf16"), ("mask-dtype[mask=fp64]", "fp32")):
        assert symbol(found, case, dtype, "sdpa-math") == "refused"
    notes = frame[frame["inputs"].str.startswith("zoo/mask-dtype") & (frame["status"] == "refused")]["note"]
    assert notes.str.contains("dtype|scalar type").all()


def test_ordinary_shapes_and_layouts_are_right_everywhere(found):
    ordinary = found[found["case"].str.contains("^(?:residue|view|gqa|causal-shape|mask-01|mask-3d)")]
    assert set(ordinary["symbol"]) <= {"right", "refused"}
    refused = ordinary[ordinary["symbol"] == "refused"]
    assert set(refused["method"]) == {"sdpa-flash"}
    assert set(refused["case"]) == {"mask-3d", "view[layout=transposed]"}


def reason(found, case, dtype, method):
    (one,) = found[(found["case"] == case) & (found["dtype"] == dtype) & (found["method"] == method)].itertuples()
    return one.reason


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
def test_second_derivatives_are_there_or_refused(found, dtype):
    for case in ("second-order", "second-order[asks=jvp]"):
        assert symbol(found, case, dtype, "sdpa-math") == symbol(found, case, dtype, "eager") == "right"
        assert symbol(found, case, dtype, "sdpa-flash") == "refused"
    assert "not implemented" in reason(found, "second-order", dtype, "sdpa-flash")
    assert "forward AD" in reason(found, "second-order[asks=jvp]", dtype, "sdpa-flash")


@pytest.mark.parametrize("method", ["sdpa-efficient", "sdpa-cudnn"])
def test_a_flag_is_not_believed(found, method):
    assert symbol(found, "flags", "fp16", method) == "absent"
    assert "_sdp_enabled() says True" in reason(found, "flags", "fp16", method)
    assert symbol(found, "flags", "fp16", "sdpa-flash") == symbol(found, "flags", "fp16", "sdpa-math") == "right"


def test_the_first_call_is_told_beside_the_warm_ones(frame, found):
    rows = frame[frame["inputs"] == "zoo/first-call"]
    assert len(rows) == 9
    for row in rows.itertuples():
        words = f"{row.latency_first / row.latency:.0f} times a warm one; latency excludes it"
        assert words in reason(found, "first-call", row.dtype, row.method)


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_a_right_output_that_assert_close_refuses_passes(frame, found, dtype):
    rows = frame[(frame["inputs"] == "zoo/assert-close") & (frame["dtype"] == dtype)].set_index("method")
    x = zoo.build("assert-close").operands(dtype)
    with torch.no_grad(), backends.build("sdpa-flash").prepare(x) as call:
        out = call().double()
    right = attend(x).out.to(x.q.dtype).double()
    rtol = {"fp16": 1e-3, "bf16": 1.6e-2}[dtype]
    with pytest.raises(AssertionError, match="Tensor-likes are not close"):
        torch.testing.assert_close(out.to(x.q.dtype), right.to(x.q.dtype))
    refused = int(((out - attend(x).out).abs() > 1e-5 + rtol * attend(x).out.abs()).sum())
    assert rows.loc["sdpa-flash", "out_not_close"] == refused > 0
    assert f"refuses {refused / out.numel():.1%} of the elements" in reason(found, "assert-close", dtype, "sdpa-flash")
    assert symbol(found, "assert-close", dtype, "sdpa-flash") in ("right", "limits")
    assert symbol(found, "assert-close", dtype, "eager") in ("right", "limits")
    assert rows.loc["sdpa-math", "out_not_close"] <= refused


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
def test_what_a_mask_does_not_hide_is_a_number(frame, found, dtype):
    rows = frame[(frame["dtype"] == dtype) & (frame["method"] == "sdpa-math")].set_index("inputs")
    # Logits of -22528 beside a mask of -10000, whatever the dtype makes of it.
    assert rows.loc["zoo/mask-1e4[mask=additive]", "masked_weight_max"] == 1.0
    assert pd.isna(rows.loc["zoo/mask-1e4", "masked_weight_max"])
    lowest = -FORMATS[dtype].largest
    row = rows.loc["zoo/finfo-min"]
    assert (row["mask_dtype"], row["mask_lowest"], row["rows_masked"]) == (dtype, lowest, 0)
    warnings = found[(found["case"] == "finfo-min") & (found["dtype"] == dtype)]["warning"]
    assert warnings.str.contains(f"{lowest:.6g} in {dtype}", regex=False).all()


def test_masks_that_are_not_what_they_seem_are_warned_of(frame, found):
    table = zoo_reasons(frame)
    warned = table[table["mark"] == "warning"].set_index("case")["reason"]
    assert "is one for each head" in warned["mask-3d"]
    assert "0 and 1 is added" in warned["mask-01"]
    assert {"mask-1e4[mask=additive]", "finfo-min"} < set(warned.index)
    assert "masked-row" not in warned.index and "mask-1e4" not in warned.index


def test_tables_and_report(frame, found):
    table = zoo_table(frame)
    assert set(table["case"]) == set(found["case"])
    assert len(zoo_reasons(frame)) <= (found["symbol"] != "right").sum()
    sections = {section.id: section for section in build_report(Source(RECORD, frame)).sections}
    assert len(sections["zoo"].blocks[0].rows) == len(table)
    right = (found["symbol"] == "right").sum()
    assert f"{right} of {len(found)} answers are right" in sections["zoo"].sentences[0].replace(",", "")


# Wrong kernels of our own


@dataclass(frozen=True)
class _Wrong:
    """A right kernel in fp64 with one fault."""

    fault: str = "none"
    max_subtraction = True

    @contextmanager
    def prepare(self, x):
        q_len, kv_len = x.q.shape[2], x.k.shape[2]
        changes = {
            "none": {},
            "bottom-right": {"is_causal": False, "attn_mask": torch.ones(q_len, kv_len).tril(kv_len - q_len) > 0},
            "heads": {"k": x.k.flip(1)},
            "last-key": {"k": x.k[:, :, :-1], "v": x.v[:, :, :-1]},
            "batch": {"v": x.v[:1].expand(x.v.shape)},
            "strides": {"k": x.k.as_strided(x.k.shape, torch.empty(x.k.shape).stride(), x.k.storage_offset())},
        }
        yield lambda: attend(replace(x, **changes[self.fault])).out.to(x.q.dtype)


@pytest.mark.parametrize(
    ("fault", "case"),
    [
        ("bottom-right", "causal-shape"),
        ("bottom-right", "causal-shape[kv_len=8,q_len=5]"),
        ("bottom-right", "causal-shape[kv_len=5,q_len=8]"),
        ("heads", "gqa"),
        ("heads", "residue[batch=3,heads=5]"),
        ("last-key", "residue[kv_len=1100,q_len=7]"),
        ("batch", "residue[batch=3,heads=5]"),
        ("strides", "view"),
    ],
)
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_a_wrong_kernel_is_wrong(monkeypatch, fault, case, dtype):
    monkeypatch.setitem(backends._classes, "mine", _Wrong)
    config = f"""
    title = "t"
    [[sweep]]
    name = "s"
    methods = ["mine", "mine[fault={fault}]", "eager"]
    inputs = "zoo/{case}"
    dtype = "{dtype}"
    """
    assert marks(measure(plan(parse_config(config))))["symbol"].tolist() == ["right", "wrong", "right"]

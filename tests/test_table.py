"""Tables on a terminal of any width: nothing is lost, no figure is cut, and lines end where the terminal does."""

import re

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from precision.records.narrow import AS_IT_IS, Narrow
from precision.records.show import ROWS, render
from precision.records.table import print_table, say

REASON = "no such kernel here, in many words that say why it is not there and what could be done about it"


def rows() -> pd.DataFrame:
    """As `precision show` has them: two problems, two methods, and a hole with its reason in each."""
    lines = [
        (
            status, method, "normal", dtype, "sqrt_dk", 128, 64,
            error if status == "ok" else None, 0 if status == "ok" else None, "" if status == "ok" else REASON,
        )
        for dtype, error in (("fp16", 4.51e-4), ("bf16", 4.03e-3))
        for status, method in (("ok", "eager[max_subtraction=false]"), ("ok", "sdpa-math"), ("absent", "sdpa-cudnn"))
    ]  # fmt: skip
    columns = ["status", "method", "inputs", "dtype", "scale", "q_len", "d_k", "out_max_abs", "rows_nonfinite", "note"]
    return pd.DataFrame(lines, columns=columns)


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    def at(width: int | None, frame: pd.DataFrame, narrow: Narrow = AS_IT_IS) -> list[str]:
        if width is None:
            monkeypatch.delenv("COLUMNS", raising=False)
        else:
            monkeypatch.setenv("COLUMNS", str(width))
        render(frame, "table", narrow)
        return [line.rstrip() for line in capsys.readouterr().out.splitlines()]

    return at


def test_a_pipe_has_whole_lines(shown) -> None:
    lines = shown(None, rows(), ROWS)
    assert len(lines) == 2 + 6
    assert lines[0].split() == list(rows())
    assert lines[4].endswith(REASON)


def test_a_wide_terminal_has_every_column_and_breaks_the_prose_alone(shown) -> None:
    lines = shown(150, rows(), ROWS)
    assert lines[0].split() == list(rows())
    assert all(len(line) <= 150 for line in lines)
    assert len([line for line in lines if line.startswith(("ok", "absent"))]) == 6


def test_at_80_columns_what_rows_share_stands_above_them_and_reasons_below(shown) -> None:
    lines = shown(80, rows(), ROWS)
    assert all(len(line) <= 80 for line in lines)
    assert lines[0] == "In every row: inputs normal, scale sqrt_dk, q_len 128, d_k 64."
    assert [line for line in lines if line.startswith("dtype")] == ["dtype fp16", "dtype bf16"]
    place = lines.index("dtype bf16")
    assert [line.split() for line in lines[place + 1 : place + 4]] == [
        ["ok", "eager[max_subtraction=false]", "0.00403", "0"],
        ["ok", "sdpa-math", "0.00403", "0"],
        ["absent", "sdpa-cudnn", "[1]"],
    ]
    assert " ".join(" ".join(lines).split()).count(REASON) == 1


def test_spare_columns_are_left_out_where_there_is_no_room_and_it_says_so(shown) -> None:
    frame = rows()[["status", "method", "dtype", "out_max_abs", "note"]]
    assert "note" in shown(60, frame, Narrow(spare=("note",)))[-1]
    assert not any("no such kernel" in line for line in shown(60, frame, Narrow(spare=("note",))))
    assert not any("Left out" in line for line in shown(200, frame, Narrow(spare=("note",))))


def test_a_grid_of_marks_becomes_one_column(shown) -> None:
    methods = ["eager[max_subtraction=false]", "sdpa-math-reduced", "sdpa-efficient", "onnxruntime", "flex"]
    lines = [("overflow", "NaN", "ok", "absent", "ok", "ok"), ("view", "ok", "ok", "absent", "", "silent zero")]
    frame = pd.DataFrame(lines, columns=["case", *methods])
    assert shown(120, frame, Narrow(marks=methods))[0].split() == ["case", *methods]
    told = " ".join(" ".join(shown(64, frame, Narrow(above=("case",), marks=methods))).split())
    assert "NaN: eager[max_subtraction=false]; absent: sdpa-efficient; ok: sdpa-math-reduced, onnxruntime, flex" in told
    assert "absent: sdpa-efficient; silent zero: flex; ok: eager[max_subtraction=false], sdpa-math-reduced" in told


def test_where_no_table_fits_every_row_is_a_block(shown) -> None:
    lines = shown(30, rows(), ROWS)
    assert "out_max_abs     0.000451" in lines
    assert lines.count("") == len(rows())
    assert "status          absent" in lines and not any(line.startswith("note") and "nan" in line for line in lines)


def test_cells_break_within_names_and_never_within_figures(shown) -> None:
    cells = ("0.53 × [0.34, 1.04]", "1,234,567", "4.8e-4", "encoder.layer.0.attention", "staged[p=e4m3:x256,block=64]")
    lines = shown(40, pd.DataFrame([cells], columns=list("abcde")))
    text = "\n".join(lines)
    for whole in ("0.53 ×", "[0.34, 1.04]", "1,234,567", "4.8e-4", "p=e4m3:", "block=64]", "encoder."):
        assert whole in text
    assert all(len(line) <= 40 for line in lines)


WORDS = st.text("abcdefgh", min_size=1, max_size=9)
FIGURES = st.floats(1e-9, 1e9).map(lambda value: f"{value:.3g}")
CELLS = st.one_of(FIGURES, WORDS, st.lists(WORDS, min_size=2, max_size=12).map(" ".join), st.just(""))


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_no_word_and_no_figure_is_lost_or_cut_at_any_width(shown, data: st.DataObject) -> None:
    names = data.draw(st.lists(WORDS, min_size=1, max_size=6, unique=True))
    lines = data.draw(st.lists(st.tuples(*[CELLS] * len(names)), min_size=1, max_size=6))
    parts = [data.draw(st.sets(st.sampled_from(names))) for _ in range(2)]
    width = data.draw(st.integers(24, 120))
    printed = shown(width, pd.DataFrame(lines, columns=names), Narrow(above=tuple(parts[0]), below=tuple(parts[1])))
    assert all(len(line) <= width for line in printed)
    words = re.findall(r"[^\s,]+", " ".join(printed).replace(". ", " "))
    found = {word.rstrip(".") for word in words} | set(words)
    assert {word for line in lines for cell in line for word in cell.split()} <= found


def test_a_sentence_breaks_between_words(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    say("- fp16: --a-long-option is never cut, and neither is 0.5 ×.", indent="  ")
    lines = capsys.readouterr().out.splitlines()
    assert all(len(line) <= 30 for line in lines) and all(line.startswith("  ") for line in lines[1:])
    assert "--a-long-option" in lines[0] + lines[1]


def test_a_table_without_rows_is_its_header(capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "8")
    print_table(pd.DataFrame(columns=["kind", "meaning"]), AS_IT_IS)
    assert capsys.readouterr().out == ""
    monkeypatch.setenv("COLUMNS", "20")
    print_table(pd.DataFrame(columns=["kind", "meaning"]), AS_IT_IS)
    assert capsys.readouterr().out.split()[:2] == ["kind", "meaning"]

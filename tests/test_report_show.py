"""How a report shows values and hostile text."""

import pytest
from made_rows import plain

from precision.markdown import code_span, escape
from precision.report import show


@pytest.mark.parametrize(
    ("value", "how", "text"),
    [
        (0.0, "number", "0"),
        (0.25149, "number", "0.251"),
        (4.8e-4, "number", "4.8e-4"),
        (-4.8e-4, "number", "-4.8e-4"),
        (1.0e-10, "number", "1e-10"),
        (65504.0, "number", "65,504"),
        (3.4e38, "number", "3.4e38"),
        (float("inf"), "number", "inf"),
        (float("nan"), "number", "–"),
        (None, "count", "–"),
        (0.0, "percent", "0 %"),
        (1e-9, "percent", "< 0.1 %"),
        (0.0858, "percent", "8.6 %"),
        (0.952, "percent", "95 %"),
        (0.9966, "percent", "99.7 %"),
        (1 - 1e-9, "percent", "> 99.9 %"),
        (1.0, "percent", "100 %"),
        (0.00123, "seconds", "1.23 ms"),
        (46.67, "seconds", "46.7 s"),
        (7.19e-4, "seconds", "719 µs"),
        (2e-8, "seconds", "20 ns"),
        (33554432, "bytes", "32.0 MiB"),
        (512, "bytes", "512 B"),
        (1.6449, "ratio", "1.6 ×"),
        (4096.0, "count", "4,096"),
    ],
)
def test_shown_values(value, how, text):
    assert plain(show.show(value, how)) == text


def test_spans_and_lists():
    assert show.span([0.0041, 0.0012, 0.002]) == "0.0012 to 0.0041"
    assert show.span([2.0, 2.0]) == "2"
    assert plain(show.factor_span([1.64, 72.2])) == "1.6 to 72 ×"
    assert [show.listed(list(words)) for words in ("a", "ab", "abc")] == ["a", "a and b", "a, b and c"]
    assert [show.plural(count, "row") for count in (0, 1, 2000)] == ["0 rows", "1 row", "2,000 rows"]


@pytest.mark.parametrize(
    ("text", "span"),
    [("x", "`x`"), ("a`b", "`` a`b ``"), ("a``b|c", r"``` a``b\|c ```"), ("a\nb", "`a b`")],
)
def test_code_spans(text, span):
    assert code_span(text) == span


def test_escape_leaves_ordinary_text_alone():
    assert escape("d_k 64, 4.8e-4 (fp16)") == "d_k 64, 4.8e-4 (fp16)"

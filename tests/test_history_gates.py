"""Gates on a history: limits, non-finite counts, and the commit that brought what is wrong."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_history import COUNT, figure, series

from precision.errors import UsageError
from precision.history.figures import Figure, make_history
from precision.history.gates import Limit, find_breaches


def breaches(figures: list[Figure], *limits: str) -> list[tuple[str, str, float]]:
    found = find_breaches(make_history(figures), [Limit.parse(limit) for limit in limits])
    return [(row["commit"], row["reason"], row["value"]) for row in found.to_dict("records")]


def test_a_clean_history_has_no_breach() -> None:
    clean = [*series(1e-7, 1.2e-7, 0.9e-7), *series(0, 0, 0, **COUNT)]
    assert breaches(clean, "*track_out_rms*=2e-7") == []


def test_a_value_above_its_limit_is_a_breach_since_the_commit_that_brought_it() -> None:
    assert breaches(series(1e-7, 1e-7, 3e-3, 2e-3), "*=1e-6") == [("c2", "limit *", 3e-3)]


def test_a_value_at_its_limit_is_none() -> None:
    assert breaches(series(1e-6), "*=1e-6") == []


def test_a_latency_is_judged_by_its_interval() -> None:
    intervals = [(0.9, 1.1), (0.9, 1.3), (1.25, 1.4), (1.1, 1.4), (1.3, 1.5)]
    figures = [figure(commit, 1.2, low=low, high=high) for commit, (low, high) in enumerate(intervals)]
    assert breaches(figures[:2], "*=1.2") == []  # the second does not tell
    assert breaches(figures, "*=1.2") == [("c2", "limit *", 1.2)]  # nor does the fourth, and what was wrong stays so
    assert breaches([*figures, figure(5, 1.0, low=0.9, high=1.1)], "*=1.2") == []
    assert breaches([figure(0, 9.0, low=-math.inf, high=math.inf)], "*=1.2") == []  # a single sample tells nothing


def test_what_was_mended_is_no_breach_and_what_came_back_is_one_since_it_came_back() -> None:
    assert breaches(series(1.0, 9.0, 1.0), "*=2") == []
    assert breaches(series(1.0, 9.0, 1.0, 8.0), "*=2") == [("c3", "limit *", 8.0)]


def test_a_non_finite_count_must_not_rise_and_needs_no_limit() -> None:
    assert breaches(series(4, 4, 2, 2, **COUNT)) == []
    assert breaches(series(4, 0, 3, 3, **COUNT)) == [("c2", "non-finite count rose", 3.0)]
    assert breaches(series(4, 0, 3, 3, **COUNT), "*nonfinite*=3") == []  # a limit says what is allowed


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_value_that_is_not_finite_is_always_a_breach(value: float) -> None:
    ((commit, reason, _),) = breaches(series(1.0, value), "*=inf")
    assert (commit, reason) == ("c1", "not finite")


def test_the_last_limit_that_matches_counts() -> None:
    assert breaches(series(5.0), "*=1", "*out_rms*=9") == []
    assert breaches(series(5.0), "*out_rms*=9", "*=1") == [("c0", "limit *", 5.0)]


def test_figures_of_other_machines_torch_versions_and_benchmark_versions_are_other_series() -> None:
    for name in ("machine", "torch", "version", "source"):
        figures = [figure(0, 0, **COUNT), figure(1, 5, **{**COUNT, name: "other"})]
        assert breaches(figures) == []


def test_a_limit_knows_brackets_and_parameters() -> None:
    limit = Limit.parse("*(eager[max_subtraction=false], fp32*)=1e-6")
    assert limit.value == 1e-6
    assert limit.matches("error.Forward.track_out_rms(eager[max_subtraction=false], fp32, normal)")
    assert not limit.matches("error.Forward.track_out_rms(eager, fp32, normal)")


@pytest.mark.parametrize("text", ["", "1e-6", "=1", "a=", "a=b", "a=nan"])
def test_a_malformed_limit_is_a_mistake(text: str) -> None:
    with pytest.raises(UsageError, match="PATTERN=NUMBER"):
        Limit.parse(text)


def test_a_limit_that_guards_nothing_is_a_mistake() -> None:
    with pytest.raises(UsageError, match="matches no benchmark"):
        breaches(series(1.0), "*fp23*=1")


def breaches_by_loops(figures: list[Figure], limit: float) -> list[tuple[str, str]]:
    """The commit and the benchmark of every breach, as the rule is told: one figure after the other."""
    found = []
    for name in sorted({each.benchmark for each in figures}):
        since, wrong, lowest = "", False, math.inf
        for each in sorted((each for each in figures if each.benchmark == name), key=lambda each: each.date):
            allowed = lowest if each.kind == "nonfinite" else limit
            if not math.isfinite(each.value) or (each.value if each.low is None else each.low) > allowed:
                since, wrong = (since if wrong else each.commit), True
            elif (each.value if each.high is None else each.high) <= allowed:
                wrong = False
            lowest = min(lowest, each.value)
        if wrong:
            found.append((since, name))
    return found


VALUES = st.lists(st.tuples(st.sampled_from([0.0, 1.0, 2.0, 3.0]), st.sampled_from([None, 0.5, 1.5])), max_size=6)


@given(errors=VALUES, other=VALUES, counts=VALUES)
def test_breaches_are_those_that_loops_find(errors: Any, other: Any, counts: Any) -> None:
    figures = [
        figure(commit, value, benchmark=f"{kind} {name}", kind=kind, **around(value, width))
        for name, kind, values in (("a", "error", errors), ("b", "error", other), ("c", "nonfinite", counts))
        for commit, (value, width) in enumerate(values)
    ]
    if any(each.kind == "error" for each in figures):
        found = find_breaches(make_history(figures), [Limit.parse("error*=1.2")])
        assert sorted(zip(found["commit"], found["benchmark"], strict=True)) == sorted(breaches_by_loops(figures, 1.2))


def around(value: float, width: float | None) -> dict[str, float]:
    """An interval, where its source has one."""
    return {} if width is None else {"low": value - width, "high": value + width}

"""From failures to reasons: the likely fault in words, and how far off the kernel is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from precision.checking.faults import Evidence
from precision.checking.guess import name_conditional_faults, name_faults
from precision.checking.locate import locate
from precision.checking.problems import PROBLEMS
from precision.checking.result import Outcome, Row
from precision.checking.rule import judge
from precision.checking.truth import Truth, Values, yardstick_of

_MOST_TRIED = 6
_PROBLEMS = {problem.name for problem in PROBLEMS}
# In notes on a kernel whose output is no function of its inputs: guesses about that function would mislead.
_CHANCE, _STATE = "two calls with the same inputs", "kept between calls"


def diagnose(rows: Sequence[Row], failed: Sequence[tuple[Truth, Values]], of_calls: str = "") -> tuple[str, ...]:
    """The reasons of a failure, the likely faults first; none when nothing failed.

    `of_calls` says what the kernel does from call to call, where that is wrong.
    """
    bad = [row for row in rows if row.outcome is Outcome.FAIL]
    if not bad:
        return ()
    notes = list(dict.fromkeys([of_calls] * bool(of_calls) + [row.note for row in bad if row.problem not in _PROBLEMS]))
    of_chance = [note for note in notes if _CHANCE in note][:1]
    if of_chance:  # whatever else was noticed from call to call may be chance, too
        named = of_chance + [row.note for row in bad if row.problem == "torch-state"]
    elif any(_STATE in note for note in notes):
        named = notes
    else:
        named = notes + _guess(rows, failed)
    return (*named, *_summary(bad, notes))


def _guess(rows: Iterable[Row], failed: Sequence[tuple[Truth, Values]]) -> list[str]:
    """Faults of what the kernel computes, or else the place where it is wrong."""
    wrong = [list(_wrong_tensors(truth, values)) for truth, values in failed]
    tried = _once_a_problem(sorted((found for found in wrong if found), key=_plainest_first))[:_MOST_TRIED]
    evidence = [found for tensors in tried for found in tensors]
    passed = {(row.dtype, row.problem, row.tensor) for row in rows if row.outcome is Outcome.OK and not row.note}
    named = _cover([name_faults(found, passed) for found in evidence]) or _name_condition(evidence)
    # Of the plainest input alone: where that is wrong all over, a place in another one is an accident.
    places = [f"{found.tensor}: {where}" for found in evidence[:1] if (where := locate(found))]
    return named or places


def _name_condition(evidence: list[Evidence]) -> list[str]:
    """A fault that explains every failure, although it would spoil what is right, too."""
    explained = [name_conditional_faults(found) for found in evidence]
    common = [fault for fault in explained[0] if all(fault in faults for faults in explained)] if explained else []
    return [f"{fault}, though not everywhere" for fault in common[:1]]


def _once_a_problem(wrong: list[list[Evidence]]) -> list[list[Evidence]]:
    """Another problem says more than another dtype, which comes after all problems."""
    first = {found[0].truth.problem.name: found for found in reversed(wrong)}
    return sorted(wrong, key=lambda found: first[found[0].truth.problem.name] is not found)


def _plainest_first(wrong: list[Evidence]) -> tuple[bool, bool, int]:
    """A wrong output says more than a wrong gradient, random inputs most about rounding, and then the smallest ones."""
    problem = wrong[0].truth.problem
    return wrong[0].tensor != "out", problem.name != "plain", problem.shape.q_len * problem.shape.kv_len


def _cover(explained: list[list[str]]) -> list[str]:
    """The fewest faults that explain all failures: each time the one that explains most of those that are left."""
    named = []
    left = [faults for faults in explained if faults]
    while left:
        counts = Counter(fault for faults in left for fault in faults)
        named.append(max(counts, key=lambda fault: counts[fault]))
        left = [faults for faults in left if named[-1] not in faults]
    return named


def _wrong_tensors(truth: Truth, values: Values) -> Iterator[Evidence]:
    """What is wrong in a call; gradients of a wrong output are wrong for the same reason."""
    yardsticks = yardstick_of(truth.problem, truth.format.name, truth.call.x.q.device)
    for judgement in judge(values, truth, yardsticks):
        if not judgement.passed:
            yield Evidence(truth, values, judgement.tensor)
            if judgement.tensor == "out":
                return


def _summary(bad: list[Row], named: list[str]) -> list[str]:
    """One sentence a dtype: how many problems, and the first number; what `named` says already is not said again."""
    sentences = []
    for dtype in dict.fromkeys(row.dtype for row in bad):
        here = [row for row in bad if row.dtype == dtype]
        problems = list(dict.fromkeys(row.problem for row in here))
        listed = ", ".join(problems[:4]) + (f" and {len(problems) - 4} more" if len(problems) > 4 else "")
        numbers = [_numbers(row) for row in here if row.note not in named]
        sentences.append("; ".join([f"{dtype}: wrong on {listed}", *numbers[:1]]))
    return sentences


def _numbers(row: Row) -> str:
    what = f"{row.tensor} of {row.problem}"
    if row.max_abs is None:
        return f"{row.problem}: {row.note}"
    if row.not_finite:
        return f"{what} has {row.not_finite} elements that are NaN or infinite"
    if row.note == "bias":
        assert row.bias_ulp is not None and row.bias_allowed is not None
        return f"{what} is {row.bias_ulp:+.2f} ulp off on average, {row.bias_allowed:.2f} ulp allowed"
    if row.note == "rms":
        return f"{what} has an rms error (absolute) of {_beside(row.rms, row.rms_allowed)}"
    return f"{what} is off by {_beside(row.max_abs, row.max_allowed)}"


def _beside(error: float | None, allowed: float | None) -> str:
    """An absolute error and what is allowed, in as many digits as tell them apart."""
    assert error is not None and allowed is not None
    digits = next((n for n in range(2, 7) if f"{error:.{n}g}" != f"{allowed:.{n}g}"), 7)
    times = f"{error / allowed:.3g} times the " if 0 < error < 10 * allowed else ""
    return f"{error:.{digits}g}, {times}{allowed:.{digits}g} allowed"

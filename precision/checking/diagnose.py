"""From failures to reasons: the likely fault in words, and how far off the kernel is."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice

from torch import Tensor

from precision.checking.allowed import rms
from precision.checking.faults import HYPOTHESES, Evidence
from precision.checking.locate import locate
from precision.checking.result import Outcome, Row
from precision.checking.rule import judge
from precision.checking.significance import narrower_format
from precision.checking.truth import Truth, Values, yardstick_of
from precision.numerics.rounding import round_to

# A hypothesis explains a failure when it predicts the kernel's values with less than a third of their error.
_EXPLAINED = 1 / 3
_MOST_TRIED = 6
# As good as the best one: what is left is the kernel's own rounding, which is not told apart.
_TIE, _SAME = 1.2, 1e-3


def diagnose(rows: Iterable[Row], failed: list[tuple[Truth, Values]]) -> tuple[str, ...]:
    """The reasons of a failure, the likely faults first; none when nothing failed."""
    bad = [row for row in rows if row.outcome is Outcome.FAIL]
    if not bad:
        return ()
    tried = sorted(failed, key=_plainest_first)[:_MOST_TRIED]
    evidence = [found for truth, values in tried for found in _wrong_tensors(truth, values)]
    named = _cover([name_faults(found) for found in evidence])
    places = (f"{found.tensor}: {where}" for found in evidence if (where := locate(found)))
    return (*(named or islice(places, 1)), *_summary(bad))


def _plainest_first(pair: tuple[Truth, Values]) -> tuple[bool, int]:
    """Random inputs tell most about rounding; after them the smallest ones."""
    problem = pair[0].problem
    return problem.name != "plain", problem.shape.q_len * problem.shape.kv_len


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


def name_faults(evidence: Evidence) -> list[str]:
    """The hypotheses that predict the kernel's values, the best first; those much worse than the best are left out."""
    if format := narrower_format(evidence.found[evidence.tensor], evidence.truth):
        bits = format.significand_bits
        return [f"{evidence.tensor} looks rounded to {format.name}: no element has more than {bits} bits"]
    error = _distance(evidence, evidence.right)
    found = [
        (_distance(evidence, predicted), sentence)
        for predict in HYPOTHESES
        for sentence, predicted in predict(evidence)
    ]
    good = sorted((pair for pair in found if pair[0] < _EXPLAINED * error), key=lambda pair: pair[0])
    return [sentence for distance, sentence in good if distance <= _TIE * good[0][0] + _SAME * error]


def _distance(evidence: Evidence, predicted: Tensor) -> float:
    """Root mean square between what the kernel gave and a prediction, rounded as the kernel rounds."""
    value, predicted = evidence.value, round_to(predicted, evidence.truth.format.name).double()
    both = value.isfinite() & evidence.right.isfinite()
    if int(both.sum()) <= both.numel() // 2:
        return math.inf  # mostly NaN: nothing to compare
    return rms((value - predicted)[both])


def _summary(bad: list[Row]) -> list[str]:
    """One sentence a dtype: how many problems, and the worst number."""
    sentences = []
    for dtype in dict.fromkeys(row.dtype for row in bad):
        here = [row for row in bad if row.dtype == dtype]
        problems = list(dict.fromkeys(row.problem for row in here))
        listed = ", ".join(problems[:4]) + (f" and {len(problems) - 4} more" if len(problems) > 4 else "")
        sentences.append(f"{dtype}: wrong on {listed}; {_numbers(here[0])}")
    return sentences


def _numbers(row: Row) -> str:
    if row.max_abs is None:
        return f"{row.problem}: {row.note}"
    if row.not_finite:
        return f"{row.tensor} of {row.problem} has {row.not_finite} elements that are NaN or infinite"
    if row.note == "bias":
        return (
            f"{row.tensor} of {row.problem} is {row.bias_ulp:+.2f} ulp off on average, {row.bias_allowed:.2f} allowed"
        )
    if row.note == "rms":
        return f"{row.tensor} of {row.problem} has an rms error of {row.rms:.2g}, {row.rms_allowed:.2g} allowed"
    return f"{row.tensor} of {row.problem} is off by {row.max_abs:.2g}, {row.max_allowed:.2g} allowed"

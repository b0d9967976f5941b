"""The faults that explain one wrong tensor: hypotheses that predict it, and that no right tensor speaks against."""

from __future__ import annotations

import math
from collections.abc import Iterable, Set

from torch import Tensor

from precision.checking.allowed import allowed_rms, rms
from precision.checking.faults import HYPOTHESES, Evidence
from precision.checking.faults.fault import Hypothesis
from precision.checking.problems import find_problem
from precision.checking.rule import judge_tensor
from precision.checking.significance import narrower_format
from precision.checking.truth import TENSORS, truth_of, yardstick_of
from precision.numerics.rounding import round_to

# As good as the best one: what is left is the kernel's own rounding, which is not told apart.
_TIE, _SAME = 1.2, 1e-3
# Small problems that between them have every feature, whole blocks and remainders.
_WITNESSES = (
    *("plain", "64x128", "113x203", "needles-300", "needles-1061", "1023x1024", "gqa-6-2", "wide-v", "many-heads"),
    *("causal-129", "causal-wide", "bool-full", "additive-full", "key-padding", "scale-0.3", "staircase", "peaked"),
)

Place = tuple[str, str, str]  # dtype, problem, tensor
Explanation = tuple[float, str, Hypothesis]  # how far the prediction is from what the kernel gave


def name_faults(evidence: Evidence, passed: Set[Place]) -> list[str]:
    """The hypotheses that predict the kernel's values, the best first; those much worse than the best are left out.

    `passed` are the tensors that are right: no fault is named that would spoil them.
    """
    if format := narrower_format(evidence.found[evidence.tensor], evidence.truth):
        bits = format.significand_bits
        return [f"{evidence.tensor} looks rounded to {format.name}: no element has more than {bits} bits"]
    good = _explanations(evidence, HYPOTHESES)
    return _best(evidence, [found for found in good if not _is_contradicted(found[1], found[2], evidence, passed)])


def name_conditional_faults(evidence: Evidence) -> list[str]:
    """The same where right tensors speak against all of them, so that the fault must depend on a condition."""
    return _best(evidence, _explanations(evidence, [each for each in HYPOTHESES if each.conditional]))


def _best(evidence: Evidence, found: list[Explanation]) -> list[str]:
    error = _distance(evidence, evidence.right)
    return [
        _in_backward(sentence, evidence.tensor)
        for distance, sentence, _ in found
        if distance <= _TIE * found[0][0] + _SAME * error
    ]


def _explanations(evidence: Evidence, hypotheses: Iterable[Hypothesis]) -> list[Explanation]:
    """Predictions that leave little of the error, or no more than rounding may leave, the best first."""
    found = []
    error = _distance(evidence, evidence.right)
    yardsticks = yardstick_of(evidence.truth.problem, evidence.truth.format.name, evidence.value.device)
    rounding = allowed_rms(evidence.tensor, evidence.truth, yardsticks[evidence.tensor])
    for hypothesis in hypotheses:
        left = hypothesis.left * error
        if math.isfinite(rounding):
            left = max(left, min(rounding, error / 3))
        for sentence, predicted in hypothesis.predict(evidence):
            if (distance := _distance(evidence, predicted)) < left:
                found.append((distance, sentence, hypothesis))
    return sorted(found, key=lambda explanation: explanation[0])


def _is_contradicted(sentence: str, hypothesis: Hypothesis, evidence: Evidence, passed: Set[Place]) -> bool:
    """Whether the fault would spoil a tensor that is right."""
    if not hypothesis.everywhere:
        return False
    dtype, tensor, device = evidence.truth.format.name, evidence.tensor, evidence.value.device
    for name in _WITNESSES:
        if (dtype, name, tensor) not in passed:
            continue
        problem = find_problem(name)
        truth = truth_of(problem, dtype, 0, device)
        for said, predicted in hypothesis.predict(Evidence(truth, truth.values, tensor)):
            if said == sentence:
                found = round_to(predicted, dtype)
                return not judge_tensor(tensor, found, truth, yardstick_of(problem, dtype, device)[tensor]).passed
    return False


def _in_backward(sentence: str, tensor: str) -> str:
    """A fault of what the forward pass does, too, is one of the backward pass where out is right."""
    is_own = tensor == "out" or "backward" in sentence or any(name in sentence.split() for name in TENSORS)
    return sentence if is_own else f"in the backward pass, {sentence}"


def _distance(evidence: Evidence, predicted: Tensor) -> float:
    """Root mean square between what the kernel gave and a prediction, rounded as the kernel rounds."""
    value, predicted = evidence.value, round_to(predicted, evidence.truth.format.name).double()
    both = value.isfinite() & evidence.right.isfinite()
    if int(both.sum()) <= both.numel() // 2:
        return math.inf  # mostly NaN: nothing to compare
    return rms((value - predicted)[both])

"""The verdicts of the claims that train, on made values: what they say depends on the losses and on nothing else."""

import math
from collections.abc import Mapping

import pytest

from precision.claims.claim import claims
from precision.experiments.evidence import Evidence, Value


def stalls(losses: Mapping[tuple[str, int], tuple[float, float, float]]) -> Evidence:
    """Final losses of (unscaled, scaled, by d_k) for each optimiser and width, in both tasks; by ln d_k always 0.02."""
    return Evidence.of(
        Value(f"final loss, {task}, {optimiser}", divisor, d_k, 0, loss)
        for (optimiser, d_k), by_divisor in losses.items()
        for task in ("recall", "pool")
        for divisor, loss in zip(("1", "√d_k", "d_k", "ln d_k"), (*by_divisor, 0.02), strict=True)
    )


USUAL = {
    ("SGD", 4): (0.23, 0.25, 0.29), ("SGD", 64): (0.8, 0.0, 0.1), ("SGD", 256): (1.61, 0.0, 0.94),
    ("Adam", 4): (0.23, 0.25, 0.29), ("Adam", 64): (0.5, 0.0, 0.0), ("Adam", 256): (0.83, 0.0, 0.001),
}  # fmt: skip


def test_stalls() -> None:
    claim = claims.build("stalls")
    judged = claim.judge(stalls(USUAL))
    assert judged.verdict == claim.expected == "conditional"
    assert judged.condition == "True at d_k = 64 and at d_k = 256; not at d_k = 4."
    assert "Adam forgives" in judged.grounds
    assert "ends at 1.61 unscaled, 0 with sqrt(d_k), 0.94 with d_k and 0.02 with ln d_k under SGD" in judged.grounds


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        (dict.fromkeys(USUAL, (0.01, 0.0, 0.0)), "refuted"),
        ({("SGD", 4): (1.5, 0.2, 0.2), ("Adam", 4): (1.5, 0.2, 0.2)}, "confirmed"),
        ({("Adam", 64): (0.05, 0.0, 0.0)}, "conditional"),
    ],
)
def test_stalls_doctored(changes: dict[tuple[str, int], tuple[float, float, float]], verdict: str) -> None:
    judged = claims.build("stalls").judge(stalls(USUAL | changes))
    assert judged.verdict == verdict
    if verdict == "conditional":
        assert judged.condition == "True at d_k = 256; not at d_k = 4 nor at d_k = 64."


def test_stalls_says_when_adam_does_not_forgive() -> None:
    assert "agree" in claims.build("stalls").judge(stalls(USUAL | {("Adam", 256): (0.8, 0.0, 0.9)})).grounds


def half(nan_steps: float, loss: float) -> Evidence:
    values = {
        ("share of steps with NaN", "fp16, 1"): nan_steps,
        ("share of steps with NaN", "fp16, no max-subtraction, 1"): 1.0,
        ("share of steps with NaN", "fp16, no max-subtraction, √d_k"): 0.8,
        ("share of dL/ds exactly 0, mean over steps", "fp16, 1"): 0.9,
        ("final loss", "fp16, 1"): loss,
        ("final loss", "fp16, √d_k"): 0.01,
    }
    return Evidence.of(Value(*key, math.nan, 0, value) for key, value in values.items())


@pytest.mark.parametrize(
    ("nan_steps", "loss", "verdict"), [(0.0, 1.2, "confirmed"), (0.001, 1.2, "refuted"), (0.0, 0.02, "refuted")]
)
def test_gradient_first(nan_steps: float, loss: float, verdict: str) -> None:
    assert claims.build("gradient-first").judge(half(nan_steps, loss)).verdict == verdict


@pytest.mark.parametrize(
    ("gains", "learned", "verdict"),
    [((2.9, 3.0, 3.1), 0.001, "confirmed"), ((0.5, 0.6, 0.7), 0.001, "refuted"), ((0.5, 2.0, 3.0), 0.001, "refuted"),
     ((2.9, 3.0, 3.1), 0.5, "refuted")],
)  # fmt: skip
def test_hard_routing(gains: tuple[float, ...], learned: float, verdict: str) -> None:
    values = [
        Value("learned gain of the logits", "divisor √d_k", math.nan, seed, gain) for seed, gain in enumerate(gains)
    ]
    values.append(Value("learned gain of the logits", "divisor d_k", math.nan, 0, 5.0))
    values.append(Value("final loss, fixed scale", "divisor √d_k", math.nan, 0, 0.4))
    values.append(Value("final loss, learned gain", "divisor √d_k", math.nan, 0, learned))
    assert claims.build("hard-routing").judge(Evidence.of(values)).verdict == verdict


@pytest.mark.parametrize(
    ("quantity", "at", "value", "verdict"),
    [("variance of the logits", 1024, 1.0, "confirmed"), ("variance of the logits", 1024, 1.1, "refuted"),
     ("largest weight, mean", 1024, 0.2, "refuted"), ("final loss of associative recall", 192, 0.9, "refuted")],
)  # fmt: skip
def test_invariant(quantity: str, at: int, value: float, verdict: str) -> None:
    flat = {"variance of the logits": 1.0, "largest weight, mean": 0.107, "entropy / ln 64, mean": 0.89,
            "off-peak |dL/ds|, median": 5.7e-3, "final loss of associative recall": 0.01}  # fmt: skip
    values = [Value(name, "√d_k", d_k, 0, usual) for name, usual in flat.items() for d_k in (64, 128, 192, 1024)]
    changed = [v if (v.quantity, v.x) != (quantity, at) else Value(quantity, "√d_k", at, 0, value) for v in values]
    assert claims.build("invariant").judge(Evidence.of(changed)).verdict == verdict

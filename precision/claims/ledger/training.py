"""What the missing scale does to learning."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from math import nan

from precision.claims.claim import Claim, Judgement, claims, decide, decide_by_part
from precision.claims.training import runs
from precision.claims.training.runs import DIVISORS, EVERY_DIVISOR, Optimiser, Setup, train
from precision.claims.training.task import Task
from precision.experiments.effort import Effort
from precision.experiments.evidence import Evidence, Share, Value
from precision.experiments.plot import Plot
from precision.report.show import number, percent

UNSCALED, SCALED, BY_D = DIVISORS
_, _, _, BY_LOG = EVERY_DIVISOR
_WIDTHS = (4, 64, 256)
_TASKS: tuple[Task, ...] = ("recall", "pool")
_OPTIMISERS: tuple[Optimiser, ...] = ("sgd", "adam")
_STALLED = 0.1  # of loss above the scaled run's, in nats; chance is ln 8 = 2.08


def _final(task: str, optimiser: str) -> str:
    return f"final loss, {task}, {_name(optimiser)}"


def _name(optimiser: str) -> str:
    return {"sgd": "SGD", "adam": "Adam"}[optimiser]


_CURVE, _NORM = "loss, recall, SGD, d_k = 256", "norm of dWq, recall, SGD, d_k = 256"


@claims.register("stalls")
@dataclass(frozen=True)
class Stalls(Claim):
    """Without the scale training stalls once d_k is large."""

    topic = "training"
    source = "paper"
    said = "a loss that stays high without the scale"
    expected = "conditional"
    plot = Plot(
        "One attention head, fp32; lines are means over seeds, bands 95 % intervals. Recall: find the one token with "
        "the query's key among 16, chance is 2.08. Pool: average over all tokens with it. The learning rate "
        "(SGD .1, Adam .003) is the same everywhere.",
        curves=frozenset({_CURVE, _NORM}),
        log=frozenset({_NORM}),
    )

    def measure(self, effort: Effort) -> Iterable[Value]:
        for task, optimiser, d_k in product(_TASKS, _OPTIMISERS, _WIDTHS):
            setup = replace(runs.recall(optimiser, d_k, effort), task=task)
            for divisor, losses in runs.final_losses(setup).items():
                for seed, loss in enumerate(losses):
                    yield Value(_final(task, optimiser), divisor, d_k, seed, loss)
        yield from _curves(train(runs.recall("sgd", 256, effort)), _CURVE, _NORM)

    def judge(self, seen: Evidence) -> Judgement:
        def excess(optimiser: str, d_k: int, divisor: str) -> float:
            loss = _final("recall", optimiser)
            return seen.mean(loss, divisor, d_k) - seen.mean(loss, SCALED, d_k)

        parts = {
            f"at d_k = {d_k}": all(excess(optimiser, d_k, UNSCALED) > _STALLED for optimiser in _OPTIMISERS)
            for d_k in _WIDTHS
        }
        sgd, adam = (
            {divisor: seen.mean(_final("recall", optimiser), divisor, 256) for divisor in EVERY_DIVISOR}
            for optimiser in _OPTIMISERS
        )
        forgives = excess("adam", 256, BY_D) < _STALLED < excess("sgd", 256, BY_D)
        grounds = (
            f"Recall at d_k = 256 ends at {number(sgd[UNSCALED])} unscaled, {number(sgd[SCALED])} with sqrt(d_k), "
            f"{number(sgd[BY_D])} with d_k and {number(sgd[BY_LOG])} with ln d_k under SGD; {number(adam[UNSCALED])}, "
            f"{number(adam[SCALED])}, {number(adam[BY_D])} and {number(adam[BY_LOG])} under Adam. "
            + ("Adam forgives the divisor d_k, SGD does not." if forgives else "Adam and SGD agree about d_k.")
        )
        return decide_by_part(parts, grounds)


_NAN, _ZERO, _LOSS = "share of steps with NaN", "share of dL/ds exactly 0, mean over steps", "final loss"
_CURVE_16, _NORM_16 = "loss in fp16", "norm of dWq in fp16"
_MODES = {
    "fp16": ("fp16", True),
    "fp16, no max-subtraction": ("fp16", False),
    "bf16": ("bf16", True),
    "fp32": ("fp32", True),
}


@claims.register("gradient-first")
@dataclass(frozen=True)
class GradientFirst(Claim):
    """Training without the scale stalls before any NaN appears in fp16."""

    topic = "training"
    source = "textbook wisdom"
    said = "a high loss without a NaN"
    expected = "confirmed"
    plot = Plot(
        "Recall with Adam at d_k = 256; scores and softmax in the dtype, the rest in fp32, the loss scaled by 1024. A "
        "run that meets a NaN has no final loss.",
        curves=frozenset({_CURVE_16, _NORM_16}),
        log=frozenset({_NORM_16}),
    )

    def measure(self, effort: Effort) -> Iterable[Value]:
        steps = runs.steps(effort)
        for mode, (dtype, max_subtraction) in _MODES.items():
            run = train(Setup("recall", "adam", 256, steps, runs.seeds(effort), dtype, max_subtraction))
            yield from _ends(run, mode, steps)
            if mode == "fp16":
                yield from _curves(run, _CURVE_16, _NORM_16)

    def judge(self, seen: Evidence) -> Judgement:
        nan_steps, loss, zero = (seen.settings(name) for name in (_NAN, _LOSS, _ZERO))
        raw, scaled = (f"fp16, {divisor}" for divisor in (UNSCALED, SCALED))
        bare, bare_scaled = (f"fp16, no max-subtraction, {divisor}" for divisor in (UNSCALED, SCALED))
        grounds = (
            f"With max-subtraction fp16 has a NaN in {percent(nan_steps[raw])} of the steps and ends at a loss of "
            f"{number(loss[raw])} against {number(loss[scaled])} with the scale; {percent(zero[raw])} of the score "
            f"gradients are exactly 0. Without max-subtraction {percent(nan_steps[bare])} of the steps are NaN, and "
            f"with the scale still {percent(nan_steps[bare_scaled])}, once the scores have grown: there NaN comes "
            "first."
        )
        return decide(nan_steps[raw] == 0 and loss[raw] > loss[scaled] + _STALLED, grounds)


def _ends(run: runs.Run, mode: str, steps: int) -> Iterator[Value]:
    """How each run ended, without the divisor d_k."""
    for place, divisor in enumerate((UNSCALED, SCALED)):
        for seed in range(run.loss.shape[1]):
            setting = f"{mode}, {divisor}"
            yield Share(_NAN, setting, nan, seed, float(run.nan_steps[place, seed]) / steps)
            if run.nan_steps[place, seed] == 0:
                yield Value(_LOSS, setting, nan, seed, float(run.loss[place, seed]))
                zero = [float(point.zero[place, seed]) for point in run.points]
                yield Share(_ZERO, setting, nan, seed, sum(zero) / len(zero))


def _curves(run: runs.Run, loss: str, norm: str) -> Iterator[Value]:
    for point in run.points:
        for place, divisor in enumerate(run.divisors):
            for seed in range(run.loss.shape[1]):
                yield Value(loss, divisor, point.step, seed, float(point.loss[place, seed]))
                yield Value(norm, divisor, point.step, seed, float(point.gradient_norm[place, seed]))

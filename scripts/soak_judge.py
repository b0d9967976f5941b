"""Whether a backend is right on a random call, by the rule of `precision check`, and what is wrong in a word if not."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import lru_cache

import torch
from soak_recipe import RandomProblem, Recipe, simpler
from torch import Tensor

from precision.backends.backend import Absent, Refused, backends
from precision.backends.gradient import prepare_gradients
from precision.checking.allowed import allowed_errors
from precision.checking.problems import CheckProblem
from precision.checking.problems.problem import draw_normal
from precision.checking.result import Outcome, Row
from precision.checking.rule import judge
from precision.checking.shrink import shrink
from precision.checking.trial import Trial
from precision.checking.truth import Truth, Values, Yardstick, yardstick_of
from precision.guard import Guard
from precision.numerics.hazards import find_hazards
from precision.zoo.allowed import logit_rounding

CPU = torch.device("cpu")
IN_RANGE = "all in range"
# There the inputs tell less than a kernel is asked for: only what is not finite is a finding.
UNKNOWABLE = "one rounding moves a score by 1"
_BEYOND = "beyond the format"
_FEWEST = 100  # elements whose root mean square is a sample; a few may be off by twice that of others
_TOLD_APART = 80  # characters of what an exception says


@dataclass(frozen=True)
class Finding:
    """What a backend did wrong; two findings with the same key are the same to whoever reads them."""

    backend: str
    tensor: str
    kind: str  # raised ..., not finite, NaN lost, masked row, wrong ..., crashed, hangs
    cause: str
    recipe: Recipe
    said: str = ""

    @property
    def key(self) -> tuple[str, str, str, str]:
        """Backend, output or gradients, kind and cause."""
        return self.backend, "out" if self.tensor == "out" else "gradients", self.kind, self.cause


def find_faults(recipe: Recipe, backend: str) -> Iterator[Finding]:
    """Everything that is wrong with one backend on one call."""
    truth, cause = truth_of(recipe)
    call = truth.call
    for tensors in ("out", "gradients"):
        guard = Guard(call.tensors)
        try:
            values = _values(backend, truth, tensors)
        except (Refused, Absent, NotImplementedError):
            return
        except Exception as error:  # a kernel may raise anything
            said = " ".join(str(error).split())
            words = re.sub(r"[\d.]+", "N", said)[-_TOLD_APART:]  # the end: some begin with pages of addresses
            yield Finding(backend, tensors, f"raised {type(error).__name__}", words, recipe, said)
            return
        finally:
            written = guard.restore()
        if written:
            yield Finding(backend, tensors, "wrote to its inputs", cause, recipe)
        found = list(_judged(truth, values, backend, cause, recipe))
        yield from found
        if found or cause != IN_RANGE:  # gradients of a wrong output, or beyond the format, are wrong for that reason
            return


def shrunk(finding: Finding) -> Finding:
    """The same finding on a simpler and smaller call."""
    if finding.kind in ("crashed", "hangs"):
        return finding  # each trial would end this process
    smaller = True
    while smaller:
        smaller = False
        for recipe in simpler(finding.recipe):
            if (same := _same(finding, recipe)) is not None:
                finding, smaller = same, True
                break
    trials, problem = _Trials(finding), _problem(finding.recipe)
    problem, _ = shrink(trials, problem, trials.attempt(problem))  # type: ignore[arg-type]  # of a Bench
    assert isinstance(problem, RandomProblem) and problem.recipe is not None
    return _same(finding, problem.recipe) or finding


@dataclass(frozen=True)
class _Trials:
    """What `shrink` asks for: whether a problem still shows the finding."""

    finding: Finding

    def attempt(self, problem: CheckProblem) -> Trial:
        assert isinstance(problem, RandomProblem) and problem.recipe is not None
        failed = _same(self.finding, problem.recipe) is not None
        return Trial((Row(problem.recipe.dtype, problem.name, "out", Outcome.FAIL if failed else Outcome.OK),))


def _same(finding: Finding, recipe: Recipe) -> Finding | None:
    try:
        found = list(find_faults(recipe, finding.backend))
    except Exception:  # the simpler call cannot be made, say an infinity without the mask that hides it
        return None
    return next((each for each in found if each.key == finding.key), None)


@lru_cache(maxsize=4)
def truth_of(recipe: Recipe) -> tuple[Truth, str]:
    """The truth of a call, and what about it may be too much for the format."""
    problem = _problem(recipe)
    truth = Truth(problem, recipe.dtype, 0, CPU)
    cause = _cause(truth, recipe)
    if cause == IN_RANGE:
        return truth, cause
    return Truth(replace(problem, beyond=_BEYOND), recipe.dtype, 0, CPU), cause


def _problem(recipe: Recipe) -> RandomProblem:
    return RandomProblem("random", "", recipe.shape, draw_normal, recipe=recipe)


def _cause(truth: Truth, recipe: Recipe) -> str:
    x, right = truth.call.x, truth.right
    if recipe.poison != "none":
        return "an input is not finite"
    cells = asdict(find_hazards(x, right, truth.format))
    cells |= {"scale_value": x.scale_value, "dtype": recipe.dtype}
    causes = {
        "scores overflow after the scale": cells["scores_over_after_scale"] > 0,
        "scores overflow before the scale": cells["scores_over_before_scale"] > 0,
        UNKNOWABLE: logit_rounding(cells) >= 1,
        "weights that matter round to 0": cells["weights_zero_mass_max"] > 0,
        "exponentials overflow unless the maximum is subtracted": cells["rows_sum_inf_unshifted"] > 0,
        "all exponentials of a row vanish unless the maximum is subtracted": bool(
            (right.lse[truth.kept] < truth.format.exp_underflow).any()
        ),
        "a row without a key": bool(right.masked_rows.any()),
        "a scale of 0 or below": x.scale_value <= 0,
    }
    return next((cause for cause, holds in causes.items() if holds), IN_RANGE)


def _values(backend: str, truth: Truth, tensors: str) -> Values:
    built, x = backends.build(backend), truth.call.x
    with torch.no_grad(), built.prepare(x) as attend:
        out = attend()
    wanted = (*x.q.shape[:3], x.v.shape[-1])
    if not isinstance(out, Tensor) or tuple(out.shape) != wanted or out.dtype != x.q.dtype:
        raise TypeError(f"the output is no {x.q.dtype} of shape {wanted}")
    if tensors == "out":
        return Values(out)
    with prepare_gradients(built, x, truth.call.do) as differentiate:
        return Values(out, differentiate())


def _judged(truth: Truth, values: Values, backend: str, cause: str, recipe: Recipe) -> Iterator[Finding]:
    yardsticks = yardstick_of(truth.problem, truth.format.name, CPU)
    for judgement in judge(values, truth, yardsticks):
        few = values[judgement.tensor].numel() < _FEWEST
        faults = [fault for fault in judgement.faults if not (few and fault == "rms")]
        if judgement.tensor != "out" and faults and not _is_beyond_bound(judgement.tensor, truth, values):
            faults = []
        said = f"off by {judgement.max_abs:.3g}, allowed {judgement.max_allowed:.3g}"
        if judgement.not_finite:
            yield Finding(backend, judgement.tensor, "not finite", cause, recipe, said)
        elif faults and cause != UNKNOWABLE:
            yield Finding(backend, judgement.tensor, f"wrong ({faults[0]})", cause, recipe, said)
    masked = values.out[~truth.kept]
    if bool((masked != 0).any()):
        yield Finding(backend, "out", "not 0", cause if recipe.poison != "none" else "a row without a key", recipe)
    lost = truth.values.out.isnan() & values.out.isfinite() & truth.kept[..., None]
    if bool(lost.any()):
        yield Finding(backend, "out", "NaN lost", cause, recipe, f"{int(lost.sum())} elements")


def _is_beyond_bound(tensor: str, truth: Truth, values: Values) -> bool:
    """Whether a gradient is off by more than a kernel that rounds every stage may be, in the worst case.

    Where few weights count, eager's gradients may be exact by chance: 1 (dP - dP) is 0. One that takes the sum of
    dO * O from the rounded O is as right, and is off by several times eager's error.
    """
    bound = Truth(replace(truth.problem, beyond=_BEYOND), truth.format.name, truth.seed, CPU)
    allowed = allowed_errors(tensor, bound, Yardstick(math.inf, math.inf))
    return bool((truth.error(tensor, values[tensor]).abs() > allowed).any())

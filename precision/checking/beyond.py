"""Beyond the format: what is a limit there, since its range or a convention excuses it, and what is wrong all the same.

A NaN that is lost, and a fully masked row that is not 0, are limits wherever they can come up.
"""

from __future__ import annotations

from torch import Tensor

from precision.checking.result import Outcome
from precision.checking.rule import Judgement
from precision.checking.truth import Truth


def judge_beyond(judgement: Judgement, found: Tensor, truth: Truth) -> tuple[Outcome, str]:
    """What comes of a tensor on a problem that has a `beyond`, and the note for its row."""
    tensor, where, excuse = judgement.tensor, truth.problem.beyond, truth.problem.excuse
    excused = excuse.not_finite if judgement.not_finite else excuse.finite
    if judgement.faults and not (tensor in excused and truth.format.name in excuse.dtypes):
        return Outcome.FAIL, ", ".join(judgement.faults)
    if judgement.not_finite:
        return Outcome.LIMIT, f"{tensor} is NaN or infinite {where}"
    if judgement.faults:
        return Outcome.LIMIT, f"{tensor} is further off than rounding {where}"
    if tensor == "out" and (said := _of_convention(found, truth)):
        return Outcome.LIMIT, f"{said} {where}"
    return Outcome.OK, ""


def _of_convention(out: Tensor, truth: Truth) -> str:
    """What is due in rows that have no finite right value or no key, and is not there; empty when it is."""
    lost = truth.values.out.isnan() & out.isfinite() & truth.kept[..., None]
    if bool(lost.any()):
        return "a NaN is lost"
    masked = out[~truth.kept]
    if bool((masked != 0).any()):
        return f"out is {'NaN' if bool(masked.isnan().any()) else 'not 0'}"
    return ""

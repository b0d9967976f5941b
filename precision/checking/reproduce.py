"""A script of ten lines that shows the smallest failing input."""

from __future__ import annotations

import json

from precision.checking.problems import CheckProblem
from precision.checking.result import Outcome, Row
from precision.checking.shrink import shrink
from precision.checking.trial import Bench, Trial

_SCRIPT = """\
import torch
import precision
from precision.checking.problems import find_problem
from precision.loading import loaded
from precision.problem import Shape

call = find_problem("{problem}").resized({shape}).make("{dtype}", seed={seed}, device=torch.device("{device}"))
x = call.x
with loaded({target}) as attention:
{body}
"""
_FORWARD = """\
    out = attention(x.q, x.k, x.v{keywords})
right = precision.reference(x.q, x.k, x.v, **x.keywords).out
print("largest error of out:", (out - right).abs().max().item())"""
_BACKWARD = """\
    q, k, v = (t.detach().requires_grad_() for t in (x.q, x.k, x.v))
    found = torch.autograd.grad(attention(q, k, v{keywords}), (q, k, v), call.do)
right = precision.reference(x.q, x.k, x.v, **x.keywords).backward(call.do)
for name, gradient in zip(("dq", "dk", "dv"), found):
    print(f"largest error of {{name}}:", (gradient - getattr(right, name)).abs().max().item())"""


def reproduce(target: str, failures: list[tuple[Bench, CheckProblem, Trial]]) -> str:
    """The script for the smallest failing input, empty when no call failed."""
    wrong = [failure for failure in failures if failure[2].failed]
    if not wrong:
        return ""
    bench, problem, trial = min(wrong, key=lambda failure: failure[1].shape.q_len * failure[1].shape.kv_len)
    problem, trial = shrink(bench, problem, trial)
    return _script(target, problem, trial, bench.device.type)


def _script(target: str, problem: CheckProblem, trial: Trial, device: str) -> str:
    row = _first_failure(trial)
    seed, keywords = 0, ""
    if trial.failed is not None:
        truth, _ = trial.failed
        seed = truth.seed
        x = truth.call.x
        used = [name for name, value in x.keywords.items() if value is not None and value is not False]
        keywords = "".join(f", {name}=x.{name}" for name in used)
    body = (_FORWARD if row.tensor == "out" else _BACKWARD).format(keywords=keywords)
    return _SCRIPT.format(
        problem=problem.name,
        shape=repr(problem.shape),
        dtype=row.dtype,
        seed=seed,
        target=json.dumps(target, ensure_ascii=False),
        body=body,
        device=device,
    )


def _first_failure(trial: Trial) -> Row:
    return next(row for row in trial.rows if row.outcome is Outcome.FAIL)

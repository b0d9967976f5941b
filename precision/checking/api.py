"""`precision.check`: the verdict on a kernel."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from torch import Tensor

from precision.checking.diagnose import diagnose
from precision.checking.invariances import Invariances
from precision.checking.limits import list_limits
from precision.checking.problems import PROBLEMS, CheckProblem, find_problem
from precision.checking.reproduce import reproduce
from precision.checking.result import CheckResult, Outcome, Row, Verdict
from precision.checking.trial import Bench, Trial
from precision.errors import UsageError
from precision.formats import find_format
from precision.kernel import Kernel
from precision.loading import loaded
from precision.sweep.environment import find_device
from precision.threads import one_thread
from precision.torch_state import watch_torch_state

Level = Literal["full", "quick"]

_SEEDS = {"full": 2, "quick": 1}


def check(
    target: str | Callable[..., Tensor],
    *,
    dtypes: Sequence[str] = ("fp32", "fp16", "bf16"),
    device: str = "auto",
    backward: bool = True,
    strict: bool = False,
    level: Level = "full",
) -> CheckResult:
    """Check f(q, k, v, attn_mask=None, is_causal=False, scale=None, enable_gqa=False), tensors (B, H, L, d).

    `target` is the function, or names it as FILE.py:FUNCTION or package.module:FUNCTION. Keywords that it does not
    take are refused features, which are limits. `strict` makes limits a failure of `passed`. The level `quick` takes
    one input a problem and ends at the first failure. Raises UsageError when there is no such function, it does
    not take q, k and v, or a dtype or device is unknown.
    """
    for dtype in dtypes:
        find_format(dtype)
    if not dtypes:
        raise UsageError("there is no dtype to check in; name at least one")
    place = find_device(device)
    if isinstance(target, str):
        with loaded(target) as function:
            return _Check(target, Kernel.of(function), place, backward, level).run(dtypes, strict)
    if not callable(target):
        raise UsageError(f"{target!r} is not a function; give one that takes q, k and v")
    kernel = Kernel.of(target)
    return _Check(kernel.address, kernel, place, backward, level).run(dtypes, strict)


@dataclass
class _Check:
    """One check under way."""

    target: str
    kernel: Kernel
    device: torch.device
    backward: bool
    level: Level
    rows: list[Row] = field(default_factory=list)
    failures: list[tuple[Bench, CheckProblem, Trial]] = field(default_factory=list)

    def run(self, dtypes: Sequence[str], strict: bool) -> CheckResult:
        begin = time.perf_counter()
        with one_thread(self.device), watch_torch_state() as changed:  # one thread repeats bit for bit
            for dtype in dtypes:
                self._run_dtype(dtype)
            for what in changed():
                self.rows.append(Row(dtypes[-1], "torch-state", "out", Outcome.FAIL, note=f"it changes torch's {what}"))
            if self.level == "full" and "fp64" not in dtypes and not self.failures:
                self._probe_fp64()
            reasons = diagnose(self.rows, [trial.failed for _, _, trial in self.failures if trial.failed])
            reproduction = "" if self.level == "quick" else reproduce(self.target, self.failures)
        limits = list_limits(self.rows)
        verdict = Verdict.FAIL if reasons else Verdict.PASS_WITH_LIMITS if limits else Verdict.PASS
        return CheckResult(
            kernel=self.target,
            verdict=verdict,
            reasons=reasons,
            limits=limits,
            rows=tuple(self.rows),
            reproduction=reproduction,
            seconds=time.perf_counter() - begin,
            strict=strict,
        )

    def _run_dtype(self, dtype: str) -> None:
        bench = Bench(self.kernel, dtype, self.device, self.backward, _SEEDS[self.level])
        for problem in PROBLEMS:
            if dtype not in problem.dtypes:
                continue
            trial = bench.attempt(problem)
            self.rows += trial.rows
            if any(row.outcome is Outcome.FAIL for row in trial.rows):
                self.failures.append((bench, problem, trial))
                if self.level == "quick":
                    return
            if problem.name == "plain" and not self.failures:
                found = list(Invariances(self.kernel, dtype, self.device, self.backward).rows())
                self.rows += found
                if self.level == "quick" and any(row.outcome is Outcome.FAIL for row in found):
                    return

    def _probe_fp64(self) -> None:
        """Where fp64 was not asked for and the kernel takes it, less than fp64 precision is a limit."""
        bench = Bench(self.kernel, "fp64", self.device, self.backward, seeds=1)
        trial = bench.attempt(find_problem("plain"))
        if trial.failed is not None:
            note = "inputs in fp64 are computed with less precision"
            self.rows += [
                replace(row, outcome=Outcome.LIMIT, note=note) for row in trial.rows if row.outcome is Outcome.FAIL
            ]
        elif all(row.outcome is Outcome.OK for row in trial.rows):
            self.rows += trial.rows

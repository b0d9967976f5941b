"""Fingerprint: which plan a kernel behaves like, by the share of output elements that are the same bits.

The right plan leaves few elements that differ, where the order of a sum decides a rounding; a plan that is wrong on one
count leaves many.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch

from precision.backends.backend import Absent, Backend, Refused
from precision.backends.staged import spell
from precision.errors import UsageError
from precision.explain.search import Search
from precision.explain.target import find_target, run_target
from precision.formats import find_format
from precision.inputs.make import make_inputs
from precision.problem import Problem, Shape
from precision.sweep.environment import find_device
from precision.threads import one_thread

# Logits of about one and of about four: flat weights and peaked ones. 600 keys tell tiles of up to 512 apart; the scale
# 1/sqrt(48) is no power of two, so that its place tells.
_SHAPE = Shape(batch=1, q_heads=2, kv_heads=2, q_len=96, kv_len=600, d_k=48, d_v=48)
_INPUTS = ("normal", "large[std=2]")

# Dtypes that kernels compute in more than: what is rounded to them tells, and the order of sums seldom does.
_TELLING = ("fp16", "bf16")
# A plan that is right leaves no more than a twentieth: the worst of torch's CPU backends leaves 3 %.
_EXPLAINS = 0.95

Rank = Literal["nearest", "as near", "further"]


@dataclass(frozen=True)
class Likeness:
    """How near one plan comes to a kernel in one dtype."""

    dtype: str
    rank: Rank  # as near: not significantly further than the nearest
    plan: str  # what it does, in words
    equal: float  # share of output elements that are the same bits
    rel_l2: float | None  # ||kernel - plan|| / ||plan||; None when that is no number
    method: str  # the backend that computes it


@dataclass(frozen=True)
class Fingerprint:
    """All plans that were compared, in each dtype from the nearest on."""

    target: str
    rows: tuple[Likeness, ...]
    refusals: tuple[tuple[str, str], ...]  # dtypes that the kernel does not take, with its reason

    @property
    def nearest(self) -> tuple[Likeness, ...]:
        """The plan that the kernel behaves like, in each dtype."""
        return tuple(row for row in self.rows if row.rank == "nearest")

    @property
    def passed(self) -> bool:
        """Whether a plan explains the kernel in every dtype that it takes."""
        return all(row.equal >= _EXPLAINS for row in self.nearest)

    @property
    def sentences(self) -> list[str]:
        """The answer, one sentence a dtype."""
        found = [_sentence(self.target, row) for row in self.nearest]
        return [*found, *(f"{self.target} does not take {dtype}: {reason}" for dtype, reason in self.refusals)]

    def to_json(self) -> dict[str, Any]:
        """The verdict, the sentences and every row."""
        return {
            "verdict": "pass" if self.passed else "fail",
            "sentences": self.sentences,
            "rows": [asdict(row) for row in self.rows],
        }


def explain(target: str, dtypes: Sequence[str] = ("fp16", "bf16"), device: str = "auto") -> Fingerprint:
    """Find the plan that a backend, or a function named FILE.py:FUNCTION or MODULE:FUNCTION, behaves like.

    Raises UsageError when there is no such backend, function or device, when it is not on this machine or takes none of
    the dtypes, and on a dtype in which kernels hardly differ.
    """
    for dtype in dtypes:
        if find_format(dtype).name not in _TELLING:
            raise UsageError(
                f"in {dtype} a kernel rounds no stage to less than it computes in; explain tells fp16, bf16"
            )
    place = find_device(device)
    backend = find_target(target)
    rows: list[Likeness] = []
    refusals: list[tuple[str, str]] = []
    with one_thread(place), torch.no_grad():  # one thread repeats bit for bit
        for dtype in dtypes:
            try:
                rows += _compare(target, backend, dtype, place)
            except Absent as error:
                raise UsageError(f"{target} is not on this machine: {error}") from None
            except Refused as error:
                refusals.append((dtype, str(error)))
    if not rows:
        raise UsageError(f"{target} takes none of {', '.join(dtypes)}: {refusals[0][1]}")
    return Fingerprint(target, tuple(rows), tuple(refusals))


def _compare(target: str, backend: Backend, dtype: str, device: torch.device) -> Iterator[Likeness]:
    calls = [make_inputs(Problem(_SHAPE, dtype, name), device).rounded for name in _INPUTS]
    search = Search(calls, [run_target(target, backend, x) for x in calls], dtype)
    best = search.climb(enough=_EXPLAINS)
    for point in [best, *(point for point in search.compared() if point != best)]:
        rank: Rank = "nearest" if point == best else "further" if search.is_better(best, point) else "as near"
        difference = search.difference(point)
        yield Likeness(
            dtype=dtype,
            rank=rank,
            plan=point.words(dtype),
            equal=search.equal(point),
            rel_l2=difference if math.isfinite(difference) else None,
            method=spell(point.plan),
        )


def _sentence(target: str, row: Likeness) -> str:
    share = f"{100 * row.equal:.2f} % of elements bit-equal"
    if row.equal >= _EXPLAINS:
        return f"{target} in {row.dtype} behaves like: {row.plan}; {share}"
    return f"no plan explains {target} in {row.dtype}; the nearest is: {row.plan}; {share}"

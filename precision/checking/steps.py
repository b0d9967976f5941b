"""A check goes by steps, each with its own rows. Needs no torch, so that who only waits for one starts at once."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """What a step tries: one problem, all invariances, or fp64 where nobody asked for it."""

    PROBLEM = "problem"
    INVARIANCES = "invariances"
    FP64 = "fp64"


@dataclass(frozen=True)
class Step:
    """One problem in one dtype, or one of the other kinds of step."""

    dtype: str
    problem: str
    kind: Kind = Kind.PROBLEM

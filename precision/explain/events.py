"""What can happen to a value when a stage is rounded, seen from its values before and after."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor

from precision.numerics.failure import Kind
from precision.stages.rounder import Seen
from precision.stages.rounding import Rounding

_GIVEN = ("q", "k", "v", "do")
# A masked key is -inf from here on, and a row that sees no key has this maximum and this logarithm of its sum.
_MASKED = ("masked", "m", "shifted", "lse")


@dataclass(frozen=True)
class Event:
    """One kind of failure at some elements of a stage."""

    kind: Kind
    hit: Tensor  # bool, of the shape of the stage's part that was seen
    limit: float | None


def is_failed(stage: str, x: Tensor) -> Tensor:
    """Which values are NaN or infinite and not meant to be (bool, the shape of x)."""
    return x.isnan() | x.isposinf() if stage in _MASKED else ~x.isfinite()


def find_events(seen: Seen, clean: Tensor) -> Iterator[Event]:
    """The failures that begin at this stage.

    A value that was finite before its rounding and is not after it failed here. One that was not finite before failed
    here if nothing that it is made of has failed: `clean`, bool, broadcasts to the values and says so of their rows.
    """
    before, after = seen.before, seen.after
    failed = is_failed(seen.stage, before)
    if seen.stage in _GIVEN:
        yield from _non_empty(Event("input", failed, None))
    else:
        yield from _non_empty(Event("invalid", failed & clean & before.isnan(), None))
        yield from _non_empty(Event("overflow", failed & clean & before.isinf(), _largest(seen.rounding)))
    if seen.rounding.is_exact:
        return
    finite = before.isfinite()
    yield from _non_empty(Event("overflow", finite & after.isinf(), _largest(seen.rounding)))
    if (largest := _largest(seen.rounding)) is not None:
        yield from _non_empty(Event("saturated", finite & after.isfinite() & (before.abs() >= largest), largest))
    yield from _non_empty(Event("underflow", (after == 0) & (before != 0), _smallest(seen.rounding)))


def _non_empty(event: Event) -> Iterator[Event]:
    if event.hit.any():
        yield event


def _largest(rounding: Rounding) -> float | None:
    """The magnitude from which values become infinite, or from which they lose more than half an ulp."""
    if rounding.shared_rows is not None:  # the largest value decides what becomes of the others
        return None
    format = rounding.limits
    limit = format.overflow_threshold if format.has_infinity else format.largest + _half_ulp_of_largest(rounding)
    return limit / rounding.factor


def _half_ulp_of_largest(rounding: Rounding) -> float:
    format = rounding.limits
    return 2.0 ** (format.max_exponent - format.significand_bits)


def _smallest(rounding: Rounding) -> float | None:
    """The magnitude up to which values become 0."""
    if rounding.shared_rows is not None:
        return None
    format, ends = rounding.limits, {"nearest": 0.5, "truncate": 1.0}
    return None if rounding.mode == "stochastic" else ends[rounding.mode] * format.smallest / rounding.factor

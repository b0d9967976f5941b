"""What must not change the output: calling again, the rest of the batch, the order of heads, padding, earlier calls.

Each is a call whose right values are known, so that the rule judges it like any other; only bitwise repetition and
side effects are compared directly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from torch import Tensor

from precision.checking.fit import fit
from precision.checking.gradient_invariances import GradientInvariances
from precision.checking.large_grid import REFUSED, find_lost_copies
from precision.checking.mask_gradient import NO_GRADIENT
from precision.checking.problems import find_problem
from precision.checking.result import Outcome, Row
from precision.checking.rule import judge_tensor
from precision.checking.steadiness import KEPT
from precision.checking.truth import Truth, truth_of, yardstick_of
from precision.guard import Guard
from precision.kernel import Kernel, Unsupported, first_line
from precision.numerics.metrics import ulp
from precision.operands import Operands

_CHANCE = "two calls with the same inputs differ, and one of them is wrong"
_WITHIN_ROUNDING = "two calls with the same inputs differ by up to"
_SHARED = "the output shares memory with"
_LIMITS = (_WITHIN_ROUNDING, NO_GRADIENT, _SHARED, REFUSED)
_MANY = 24  # of which one in six that goes wrong is met with a probability of 99 %


class Invariances:
    """Checks of one kernel in one dtype, on two inputs of the plain problem."""

    def __init__(self, kernel: Kernel, dtype: str, device: torch.device, backward: bool) -> None:
        self._kernel, self._dtype, self._backward = kernel, dtype, backward
        self._device = device
        self._first, self._second = (self._truth("plain", seed) for seed in (0, 1))
        self._masked = [self._truth("bool-full", seed) for seed in (0, 1)]

    def rows(self) -> Iterator[Row]:
        """One row an invariance; the plain problem itself must have passed."""
        checks: dict[str, Callable[[], Iterator[str]]] = {
            "repeat": self._repeat,
            "earlier-output": self._earlier_output,
            "same-memory": self._same_memory,
            "own-memory": self._own_memory,
            "one-sequence": self._one_sequence,
            "head-order": self._head_order,
            "default-scale": self._default_scale,
            "another-mask": self._another_mask,
            "mask-in-place": self._mask_in_place,
            "large-grid": self._large_grid,
        }
        if self._backward:
            checks |= GradientInvariances(self._kernel, self._truth, self._is_wrong).checks()
        for name, check in checks.items():
            for note in self._notes(check) or [""]:
                limit = note.startswith(_LIMITS)
                outcome = Outcome.LIMIT if limit else Outcome.FAIL if note else Outcome.OK
                of_chance = self._notes(self._many_calls) if outcome is Outcome.FAIL else []
                yield Row(self._dtype, name, "out", outcome, note=next(iter(of_chance), note))

    def _truth(self, name: str, seed: int = 0) -> Truth:
        """Of one call of a problem, in a shape that the kernel takes."""
        return truth_of(
            fit(self._kernel, find_problem(name), self._dtype, self._device), self._dtype, seed, self._device
        )

    def _notes(self, check: Callable[[], Iterator[str]]) -> list[str]:
        try:
            return list(check())
        except Unsupported:
            return []  # the feature is listed as refused by the problems that need it
        except Exception as error:  # a kernel may raise anything
            return [f"it raises {type(error).__name__}: {first_line(error)}"]

    def _forward(self, x: Operands) -> Tensor:
        calls = (truth.call for truth in (self._first, self._second, *self._masked))
        guard = Guard(tensor for call in calls for tensor in call.tensors)
        try:
            with torch.no_grad():
                return self._kernel.forward(x)
        finally:
            guard.restore()  # that it writes to its inputs is said where the problem itself is tried

    def _is_wrong(self, out: Tensor, truth: Truth, tensor: str = "out") -> bool:
        yardstick = yardstick_of(truth.problem, self._dtype, out.device)[tensor]
        return not judge_tensor(tensor, out, truth, yardstick).passed

    def _repeat(self) -> Iterator[str]:
        x = self._first.call.x
        first = self._forward(x).clone()
        again = [self._forward(x) for _ in range(3)]
        if any(self._is_wrong(out, self._first) for out in again):
            yield _CHANCE
        elif not all(torch.equal(first, out) for out in again):
            apart = max(
                float(((out.double() - first.double()) / ulp(first.double(), self._first.format)).abs().max())
                for out in again
            )
            yield f"{_WITHIN_ROUNDING} {apart:.3g} ulp"

    def _many_calls(self) -> Iterator[str]:
        """Where one of many calls with the same inputs is wrong, no other check says anything."""
        if any(self._is_wrong(self._forward(self._first.call.x), self._first) for _ in range(_MANY)):
            yield _CHANCE

    def _earlier_output(self) -> Iterator[str]:
        out = self._forward(self._first.call.x)
        kept = out.clone()
        later = self._forward(self._second.call.x)
        if not torch.equal(out, kept):
            yield "a later call overwrites an earlier output"
        if self._is_wrong(later, self._second):
            yield KEPT

    def _same_memory(self) -> Iterator[str]:
        x = self._first.call.x
        q, k, v = x.q.clone(), x.k.clone(), x.v.clone()
        self._forward(Operands(q, k, v))
        for tensor, new in zip(
            (q, k, v), (self._second.call.x.q, self._second.call.x.k, self._second.call.x.v), strict=True
        ):
            tensor.copy_(new)
        if self._is_wrong(self._forward(Operands(q, k, v)), self._second):
            yield "it is wrong when inputs change in place: something is kept between calls"

    def _own_memory(self) -> Iterator[str]:
        """Who adds to an output in place must not change an input: with one key, out is v."""
        for truth in (self._first, self._truth("one-key")):
            x = truth.call.x
            memory = self._forward(x).untyped_storage().data_ptr()
            for name in ("q", "k", "v"):
                if getattr(x, name).untyped_storage().data_ptr() == memory:
                    yield f"{_SHARED} {name}"
                    return

    def _one_sequence(self) -> Iterator[str]:
        x = self._first.call.x
        out = torch.cat(
            [self._forward(Operands(x.q[b : b + 1], x.k[b : b + 1], x.v[b : b + 1])) for b in range(x.q.shape[0])]
        )
        if self._is_wrong(out, self._first):
            yield "a sequence by itself comes out wrong"

    def _head_order(self) -> Iterator[str]:
        x = self._first.call.x
        out = self._forward(Operands(x.q.flip(1), x.k.flip(1), x.v.flip(1))).flip(1)
        if self._is_wrong(out, self._first):
            yield "another order of heads comes out wrong"

    def _default_scale(self) -> Iterator[str]:
        x = self._first.call.x
        if self._is_wrong(self._forward(replace(x, scale=1 / math.sqrt(x.q.shape[-1]))), self._first):
            yield "scale=1/sqrt(d_k) is not the same as no scale"

    def _large_grid(self) -> Iterator[str]:
        return find_lost_copies(self._forward, self._is_wrong, self._truth("1088-heads"))

    def _another_mask(self) -> Iterator[str]:
        first, second = (self._is_wrong(self._forward(truth.call.x), truth) for truth in self._masked)
        if second and not first:
            yield "a mask is wrong after another of the same shape: something is kept between calls"

    def _mask_in_place(self) -> Iterator[str]:
        first, second = self._masked
        if first.call.x.attn_mask is None or second.call.x.attn_mask is None:
            return
        mask = first.call.x.attn_mask.clone()
        before = self._is_wrong(self._forward(replace(first.call.x, attn_mask=mask)), first)
        mask.copy_(second.call.x.attn_mask)
        if not before and self._is_wrong(self._forward(replace(second.call.x, attn_mask=mask)), second):
            yield "a mask that changes in place is not read again: something is kept between calls"

"""What is true of one call of a problem: its right values, and how far right kernels may be from them.

Everything here depends on the problem alone, so it is made once a process and shared by all kernels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import torch
from torch import Tensor

from precision.backends.eager import Eager
from precision.checking.problems import Call, CheckProblem
from precision.formats import Format, find_format
from precision.kernel import Kernel
from precision.numerics.bounds import Matrices, Roundings, Sensitivity, Sizes, largest_errors
from precision.numerics.gradients import Gradients
from precision.numerics.reference import Reference, attend
from precision.operands import Operands

TENSORS = ("out", "dq", "dk", "dv")

# The shortest chunk over which a kernel may add up gradients in the dtype: the smallest tile of tensor cores.
_CHUNK = 16

# Of a difference quotient: its own error is of the order of the square.
_STEP = 1e-4

# On which a kernel is called in a full check.
KEPT_INPUTS = 2

# The yardstick is pooled over three inputs, and over more where a problem has few rows to pool over.
_INPUTS, _ROWS, _MOST_INPUTS = 3, 200, 8
_LARGE = 1_000_000  # elements of k and v, of which more than three inputs take too long


def _eager(q: Tensor, k: Tensor, v: Tensor, **keywords: Any) -> Tensor:
    keywords.pop("enable_gqa", None)
    return Eager().attend(Operands(q, k, v, **keywords))


YARDSTICK = Kernel(_eager, frozenset(("attn_mask", "is_causal", "scale", "enable_gqa")), frozenset())


@dataclass(frozen=True)
class Values:
    """out and, where there is a backward pass, dq, dk and dv; of a kernel, or right ones in fp64."""

    out: Tensor
    gradients: Gradients | None = None

    def __getitem__(self, tensor: str) -> Tensor:
        found = self.out if tensor == "out" else getattr(self.gradients, tensor)
        assert isinstance(found, Tensor)
        return found

    @property
    def tensors(self) -> tuple[str, ...]:
        """The names of what is there."""
        return TENSORS if self.gradients is not None else TENSORS[:1]


class Truth:
    """One call of a problem with its fp64 values and error sizes; each is made when it is first asked for."""

    def __init__(self, problem: CheckProblem, dtype: str, seed: int, device: torch.device) -> None:
        self.problem = problem
        self.format: Format = find_format(dtype)
        self.seed = seed
        self.call: Call = problem.make(dtype, seed, device)

    @cached_property
    def right(self) -> Reference:
        """fp64 attention of the operands as the kernel gets them."""
        return attend(self.call.x)

    @cached_property
    def values(self) -> Values:
        """The right out, and the right gradients where the problem has them."""
        return Values(self.right.out, self.right.backward(self.call.do) if self.problem.backward else None)

    @cached_property
    def _finite_right(self) -> Reference:
        """The same with 0 for NaN, for the sizes of errors: such an element takes no part, or nothing is compared."""
        x = self.call.x
        if all(bool(tensor.isfinite().all()) for tensor in (x.q, x.k, x.v)):
            return self.right
        return attend(replace(x, q=x.q.nan_to_num(0.0), k=x.k.nan_to_num(0.0), v=x.v.nan_to_num(0.0)))

    @cached_property
    def kept(self) -> Tensor:
        """(B, Hq, L), the rows that see a key."""
        return ~self.right.masked_rows

    @cached_property
    def accumulation(self) -> Sizes:
        """Errors of sums in fp32 (fp64 for fp64), one standard deviation of a bounded rounding each."""
        return self._scaled(self.sensitivity().accumulation(), self.sum_roundoff)

    @cached_property
    def chunked(self) -> Sizes:
        """The same for gradients that are added up in the dtype, a chunk of queries or keys after the other."""
        return self._scaled(self.sensitivity().chunked(_CHUNK), self.format.unit_roundoff)

    @cached_property
    def first_order(self) -> Sizes:
        """The largest error of a kernel that rounds every stage to the format."""
        rounded = Roundings.every_stage(self.format.unit_roundoff, self.sum_roundoff)
        return largest_errors(Matrices(self._finite_right, self.call.do), rounded)

    @cached_property
    def scale_slope(self) -> dict[str, Tensor]:
        """d / d ln(scale) of each tensor, as a difference quotient in fp64."""
        up, down = (self._under_scale(1 + step) for step in (_STEP, -_STEP))
        return {tensor: (up[tensor] - down[tensor]) / (2 * _STEP) for tensor in up.tensors}

    @cached_property
    def eager(self) -> Values:
        """What the same-dtype eager kernel makes of this call."""
        if not self.problem.backward:
            return Values(YARDSTICK.forward(self.call.x))
        return Values(*YARDSTICK.gradients(self.call.x, self.call.do))

    def _under_scale(self, factor: float) -> Values:
        right = attend(replace(self.call.x, scale=self.call.x.scale_value * factor))
        return Values(right.out, right.backward(self.call.do) if self.problem.backward else None)

    def error(self, tensor: str, found: Tensor) -> Tensor:
        """found - right in fp64: infinite where found is not finite, 0 where there is no right value to compare."""
        error = (found.double() - self.values[tensor]).nan_to_num(math.inf, math.inf, -math.inf)
        return error.masked_fill(~self.compared(tensor), 0.0)

    def compared(self, tensor: str) -> Tensor:
        """Elements with a finite right value; fully masked rows of out are a matter of convention, and left out."""
        finite = self.values[tensor].isfinite()
        return finite & self.kept[..., None] if tensor in ("out", "dq") else finite

    @property
    def sum_roundoff(self) -> float:
        """u of the narrowest format in which sums may be kept: fp32, or the format itself where it is wider."""
        return min(self.format.unit_roundoff, find_format("fp32").unit_roundoff)

    def sensitivity(self) -> Sensitivity:
        """Not kept: it holds several matrices of weights."""
        right = self._finite_right
        return Sensitivity(right, self.call.do, self.values.gradients or right.backward(self.call.do))

    @staticmethod
    def _scaled(sizes: Sizes, factor: float) -> Sizes:
        return Sizes(*(factor * getattr(sizes, name) for name in TENSORS))


@lru_cache(maxsize=4096)
def truth_of(problem: CheckProblem, dtype: str, seed: int, device: torch.device) -> Truth:
    """The truth of one call; the same object for the same arguments."""
    return Truth(problem, dtype, seed, device)


@dataclass(frozen=True)
class Yardstick:
    """The error of same-dtype eager for one tensor, pooled over several inputs; not finite where eager is not."""

    max_abs: float
    rms: float


@lru_cache(maxsize=4096)
def yardstick_of(problem: CheckProblem, dtype: str, device: torch.device) -> dict[str, Yardstick]:
    """The yardstick of each tensor; beyond the format, where eager may do anything, an infinite one."""
    if problem.beyond and problem.few_roundings:
        return dict.fromkeys(TENSORS, Yardstick(math.inf, math.inf))
    shape = problem.shape
    rows = shape.batch * shape.q_heads * min(shape.q_len, shape.kv_len)
    is_large = shape.batch * shape.kv_heads * shape.kv_len * (shape.d_k + shape.d_v) > _LARGE
    inputs = _INPUTS if is_large else min(_MOST_INPUTS, max(_INPUTS, math.ceil(_ROWS / max(rows, 1))))
    largest: dict[str, list[float]] = {}
    mean_square: dict[str, list[float]] = {}
    for seed in range(inputs):
        # What kernels are called on is kept anyway; of other inputs only the sizes of eager's errors are.
        truth = (truth_of if seed < KEPT_INPUTS else Truth)(problem, dtype, seed, device)
        for tensor in truth.values.tensors:
            error = truth.error(tensor, truth.eager[tensor])
            largest.setdefault(tensor, []).append(float(error.abs().max()))
            mean_square.setdefault(tensor, []).append(float(error.square().mean()))
    return {t: Yardstick(max(largest[t]), math.sqrt(sum(mean_square[t]) / inputs)) for t in largest}

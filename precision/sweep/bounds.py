"""Errors of a case over the worst-case bound of what its method rounds, on a part of the call."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from torch import Tensor

from precision.formats import Format, find_format
from precision.numerics.bounds import (
    Matrices,
    Roundings,
    Sample,
    condition_number,
    largest_errors,
    largest_output_error,
)
from precision.numerics.gradients import Gradients
from precision.numerics.reference import Reference
from precision.records.columns import BOUND_PAIRS, GRADIENT_BOUND_PAIRS
from precision.records.row import Cell
from precision.spec import Spec

if TYPE_CHECKING:
    from precision.sweep.truth import Truth

# Backends that keep scores, softmax and sums in fp32, by their documentation or source; others may round every stage.
_FP32_STATE = frozenset(
    ("sdpa-math", "sdpa-efficient", "sdpa-cudnn", "flex", "flash-attn-2", "flash-attn-3", "xformers", "triton")
)
# So does torch's FLASH, but on a CPU its gradients are added up in the dtype, tile by tile of at least so many
# (aten/src/ATen/native/cpu/FlashAttentionKernel.cpp).
_QUERY_CHUNK, _KEY_CHUNK = 32, 512


# Backends that round to narrower formats than the dtype, or compute another function on purpose.
_UNBOUNDED = ("staged", "sageattention", "weighting/")


def roundings_of(method: str, format: Format) -> Roundings | None:
    """What a method rounds, None where its dtype does not say; sums are in fp32, or in the format where it is wider."""
    spec = Spec.parse(method)
    if spec.name.startswith(_UNBOUNDED):
        return None
    state = min(format, find_format("fp32"), key=lambda format: format.unit_roundoff)
    u, sums, underflow = format.unit_roundoff, state.unit_roundoff, _underflow(format, state)
    if spec.name in ("sdpa", "sdpa-flash"):
        return Roundings.fused(u, sums, underflow, query_chunk=_QUERY_CHUNK, key_chunk=_KEY_CHUNK)
    if spec.name in _FP32_STATE:
        return Roundings.fused(u, sums, underflow)
    if spec.name == "eager" and "scale" not in dict(spec.options):
        return Roundings.textbook(u, sums, underflow)
    return Roundings.every_stage(u, sums, underflow)


def _underflow(format: Format, state: Format) -> float:
    """Half the smallest number of the format; and what a state below its normal numbers is, for kernels flush it."""
    return max(format.smallest / 2, 2.0**state.min_exponent)


class Bounds:
    """The bounds of one problem, each made once for all methods that round the same."""

    def __init__(self, truth: Truth) -> None:
        self._truth = truth
        x = truth.arithmetic.operands
        self._is_empty = 0 in (*x.q.shape, *x.k.shape)
        self._out: dict[Roundings, Tensor] = {}
        self._gradients: dict[Roundings, Gradients] = {}

    def cells(self, method: str, out: Tensor, gradients: Gradients | None) -> dict[str, Cell]:
        """..._error_over_bound of out and of the gradients that there are, and out_condition; none of an empty call."""
        if self._is_empty:
            return {}
        cells: dict[str, Cell] = {"out_condition": self._condition}
        if (rounded := roundings_of(method, self._truth.format)) is None:
            return cells
        cells |= self._out_cells(rounded, out)
        return cells if gradients is None else {**cells, **self._gradient_cells(rounded, gradients)}

    def _out_cells(self, rounded: Roundings, out: Tensor) -> dict[str, Cell]:
        part = self._part
        if rounded not in self._out:
            bound = largest_output_error(part.matrices, rounded)
            self._out[rounded] = _finish(bound, part.matrices.right.out, rounded)
        ratio = _largest_ratio(part.rows(out) - part.matrices.right.out, self._out[rounded])
        return {"out_error_over_bound": ratio}

    def _gradient_cells(self, rounded: Roundings, given: Gradients) -> dict[str, Cell]:
        """Those of dk and dv only where the part has every row of its heads."""
        part, right = self._gradient_part, self._right_gradients
        if rounded not in self._gradients:
            sizes = largest_errors(part.matrices, rounded)
            self._gradients[rounded] = Gradients(
                _finish(sizes.dq, right.dq, rounded),
                _finish(sizes.dk, right.dk, rounded),
                _finish(sizes.dv, right.dv, rounded),
            )
        bound = self._gradients[rounded]
        cells: dict[str, Cell] = {"dq_error_over_bound": _largest_ratio(part.rows(given.dq) - right.dq, bound.dq)}
        if part.sample.is_complete:
            cells["dk_error_over_bound"] = _largest_ratio(part.keys(given.dk) - right.dk, bound.dk)
            cells["dv_error_over_bound"] = _largest_ratio(part.keys(given.dv) - right.dv, bound.dv)
        return cells

    @cached_property
    def _part(self) -> _Part:
        return _Part(self._truth.arithmetic, BOUND_PAIRS)

    @cached_property
    def _condition(self) -> float:
        return condition_number(self._part.matrices)

    @cached_property
    def _gradient_part(self) -> _Part:
        return _Part(self._truth.arithmetic, GRADIENT_BOUND_PAIRS, self._truth.upstream)

    @cached_property
    def _right_gradients(self) -> Gradients:
        part, right = self._gradient_part, self._truth.gradients
        return Gradients(part.rows(right.dq), part.keys(right.dk), part.keys(right.dv))


def _finish(bound: Tensor, right: Tensor, rounded: Roundings) -> Tensor:
    """With the rounding of the result itself."""
    return bound + rounded.operands * right.abs() + rounded.underflow


class _Part:
    """A part of a call with its matrices."""

    def __init__(self, right: Reference, pairs: int, do: Tensor | None = None) -> None:
        x = right.operands
        self._group = x.q.shape[1] // x.k.shape[1]
        self.sample = Sample.of(x, pairs)
        self.matrices = Matrices(self.sample.take_call(right), None if do is None else self.rows(do))

    def rows(self, tensor: Tensor) -> Tensor:
        """Of a tensor with a row for each query, in float64."""
        return self.sample.take_rows(tensor, self._group).double()

    def keys(self, tensor: Tensor) -> Tensor:
        """Of a tensor with a row for each key, in float64."""
        return self.sample.take_keys(tensor).double()


def _largest_ratio(error: Tensor, bound: Tensor) -> float | None:
    """Over the finite errors; None when there is none."""
    ratio = (error / bound).abs()
    finite = ratio[ratio.isfinite()]
    return float(finite.max()) if finite.numel() else None

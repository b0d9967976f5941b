"""Errors against the fp64 reference, over the finite elements.

asv takes a NaN for a benchmark that was skipped, and never finishes publishing an infinity. So neither is handed to
it: elements that are not finite are counted in `incidence`, and a tensor without a finite element has the error of
the format's largest number.
"""

from __future__ import annotations

import torch

from benchmarks import cases
from benchmarks.solved import SolvedBackward as _SolvedBackward
from benchmarks.solved import SolvedForward as _SolvedForward
from precision.formats import Format
from precision.numerics.metrics import Errors, measure_errors
from precision.numerics.reference import attend


def _finite(errors: Errors | None, name: str, format: Format) -> float:
    value = format.largest if errors is None else getattr(errors, name)
    return value if value < format.largest else format.largest  # so written that a NaN becomes the largest, too


class Forward(_SolvedForward):
    """The largest and the root mean square error of the output."""

    def track_out_max_abs(self, method: str, dtype: str, scale: str, problem: str) -> float:
        return _finite(self._errors(), "max_abs", self.format)

    def track_out_rms(self, method: str, dtype: str, scale: str, problem: str) -> float:
        return _finite(self._errors(), "rms", self.format)

    def _errors(self) -> Errors | None:
        return measure_errors(self.out, self.right.out, self.format, ~self.right.masked_rows)


class Backward(_SolvedBackward):
    """The relative error, in the 2-norm, of the worst of dq, dk and dv."""

    def track_gradients_rel_l2(self, method: str, dtype: str, problem: str) -> float:
        pairs = zip(self.gradients, self.right, strict=True)
        return max(_finite(measure_errors(dx, right, self.format), "rel_l2", self.format) for dx, right in pairs)


class Reference:
    """The reference itself, against torch's fp64 attention: an error here would hide in every other one."""

    params = (cases.PROBLEMS,)
    param_names = ("problem",)
    version = "1"

    def track_reference_max_abs(self, problem: str) -> float:
        x = cases.make_operands(problem, "fp64")
        out = torch.nn.functional.scaled_dot_product_attention(x.q, x.k, x.v, **x.keywords)
        return float((attend(x).out - out).abs().max())

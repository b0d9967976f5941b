"""How much of what came out is not finite."""

from __future__ import annotations

from benchmarks.solved import SolvedBackward as _SolvedBackward
from benchmarks.solved import SolvedForward as _SolvedForward
from precision.numerics.incidence import count_incidence


class Forward(_SolvedForward):
    """Rows of the output with a NaN or an infinity, of those that see a key."""

    def track_nonfinite(self, method: str, dtype: str, scale: str, problem: str) -> int:
        return count_incidence(self.out, self.right).rows_nonfinite

    track_nonfinite.unit = "rows"


class Backward(_SolvedBackward):
    """Elements of dq, dk and dv that are not finite."""

    def track_nonfinite(self, method: str, dtype: str, problem: str) -> int:
        return sum(int((~dx.isfinite()).sum()) for dx in self.gradients)

    track_nonfinite.unit = "elements"

"""The textbook's attention under torch.compile."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from precision.backends.backend import Attention, backends
from precision.backends.compiling import compiling
from precision.backends.eager import Eager
from precision.operands import Operands


@backends.register("compiled")
@dataclass(frozen=True)
class Compiled(Eager):
    """torch.compile of eager: Inductor rewrites the plain form into SDPA, and fuses the others in fp32.

    So its rounding, overflow and NaN are those of another kernel than eager's; the column `ran` tells which.
    """

    @contextmanager
    def prepare(self, x: Operands) -> Iterator[Attention]:
        self.require(x)
        with compiling(self.attend, x.q.device) as attend:
            yield partial(attend, x)

"""The user's own kernel, which lies in a file or a module of theirs, beside the backends that ship."""

from __future__ import annotations

import atexit
import hashlib
import importlib.util
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

from precision.backends.backend import Attention, Backend, Refused, backends
from precision.kernel import Kernel, Unsupported
from precision.loading import loaded
from precision.operands import Operands

# Open until the process ends, for a kernel may import what lies beside its file when it is called.
_LOADED = ExitStack()
atexit.register(_LOADED.close)  # before Python takes its modules apart


@backends.register("kernel")
@dataclass(frozen=True)
class OwnKernel:
    """Your own kernel, function=FILE.py:FUNCTION or MODULE:FUNCTION, called as torch's SDPA is.

    `max_subtraction` says whether yours subtracts the row maximum, which nobody else can know.
    """

    function: str = "torch.nn.functional:scaled_dot_product_attention"
    max_subtraction: bool = True

    @contextmanager
    def prepare(self, x: Operands) -> Iterator[Attention]:
        kernel = _load(self.function)
        if x.scale == replace(x, scale=None).scale_value:  # which a kernel that takes no scale has by itself
            x = replace(x, scale=None)
        try:
            keywords = kernel.arguments(x)
        except Unsupported as error:
            raise Refused(str(error)) from None
        yield partial(kernel.function, x.q, x.k, x.v, **keywords)


def revision_of(backend: Backend) -> str:
    """Sixteen digits of the SHA-256 of the file of a user's kernel; empty for a backend that ships with the package.

    Raises UsageError when there is no such function, or it does not take q, k and v.
    """
    return _digest(backend.function) if isinstance(backend, OwnKernel) else ""


@cache
def _load(target: str) -> Kernel:
    return Kernel.of(_LOADED.enter_context(loaded(target)))


@cache
def _digest(target: str) -> str:
    _load(target)
    place = target.rpartition(":")[0]
    if not place.endswith(".py"):
        spec = importlib.util.find_spec(place)
        place = (spec and spec.origin) or ""
    return hashlib.sha256(Path(place).read_bytes()).hexdigest()[:16] if Path(place).is_file() else ""

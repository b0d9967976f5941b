"""The numerical truth about attention kernels.

The names below are the whole API. They are imported when first used, so that importing the package costs
nothing and tools that read results need no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from precision.capture.record import record
    from precision.checking.api import check
    from precision.checking.result import CheckResult
    from precision.errors import UsageError
    from precision.numerics.gradients import Gradients
    from precision.numerics.reference import Reference, reference
    from precision.sweep.run import run

__version__ = "0.1.0"
__all__ = ["CheckResult", "Gradients", "Reference", "UsageError", "check", "record", "reference", "run"]

_HOMES = {
    "CheckResult": "precision.checking.result",
    "Gradients": "precision.numerics.gradients",
    "Reference": "precision.numerics.reference",
    "UsageError": "precision.errors",
    "check": "precision.checking.api",
    "record": "precision.capture.record",
    "reference": "precision.numerics.reference",
    "run": "precision.sweep.run",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]

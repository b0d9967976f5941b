"""What a backend of another library asks before it computes: is it here, and does it take this problem?"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from types import ModuleType

import torch

from precision.backends.backend import Absent, Refused
from precision.operands import Operands


def import_optional(module: str, package: str) -> ModuleType:
    """The module; raises Absent with the package to install when it cannot be imported."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name not in (module, module.partition(".")[0]):  # it is installed, but lacks something itself
            raise Absent(f"{module} cannot be imported: {error}") from None
        raise Absent(f"{module} is not installed; pip install '{package}'") from None
    except (ImportError, OSError) as error:  # a library built for another torch or CUDA
        raise Absent(f"{module} cannot be imported: {error}") from None


def require_cuda(x: Operands, kernel: str) -> None:
    """Raise Absent unless the operands are on a CUDA device."""
    if x.q.device.type != "cuda":
        raise Absent(f"{kernel} runs on CUDA devices only, and the operands are on {x.q.device.type}")


@dataclass(frozen=True)
class Limits:
    """What a kernel's documentation says that it takes."""

    kernel: str
    dtypes: tuple[torch.dtype, ...] = (torch.float16, torch.bfloat16)
    largest_width: int | None = None
    unequal_widths: bool = False  # d_v unlike d_k
    bool_mask: bool = False
    additive_mask: bool = False
    # Bottom-right alignment, the other convention, is another function on a rectangle.
    top_left_causal: bool = False

    def require(self, x: Operands) -> None:
        """Raise Refused, naming the first limit that the problem exceeds."""
        (q_len, d_k), (kv_len, d_v) = x.q.shape[2:], x.v.shape[2:]
        mask = x.attn_mask
        if x.q.dtype not in self.dtypes:
            names = ", ".join(str(dtype).removeprefix("torch.") for dtype in self.dtypes)
            self._refuse(f"takes {names}, not {str(x.q.dtype).removeprefix('torch.')}")
        if self.largest_width is not None and max(d_k, d_v) > self.largest_width:
            self._refuse(f"takes head widths up to {self.largest_width}, not {max(d_k, d_v)}")
        if d_k != d_v and not self.unequal_widths:
            self._refuse(f"needs d_v equal to d_k, not {d_v} and {d_k}")
        if mask is not None and mask.dtype == torch.bool and not self.bool_mask:
            self._refuse("takes no boolean mask")
        if mask is not None and mask.dtype != torch.bool and not self.additive_mask:
            self._refuse("takes no additive mask")
        if x.is_causal and q_len != kv_len and not self.top_left_causal:
            self._refuse(f"aligns the causal mask to the bottom right, which on {q_len} x {kv_len} is another function")

    def _refuse(self, reason: str) -> None:
        raise Refused(f"{self.kernel} {reason}")

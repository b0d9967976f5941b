"""torch's scaled_dot_product_attention: as users call it, and one backend of it at a time."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from precision.backends.backend import Absent, Attention, Refused, backends
from precision.operands import Operands

_FLAGS: dict[SDPBackend, Callable[[], bool]] = {
    SDPBackend.MATH: torch.backends.cuda.math_sdp_enabled,
    SDPBackend.FLASH_ATTENTION: torch.backends.cuda.flash_sdp_enabled,
    SDPBackend.EFFICIENT_ATTENTION: torch.backends.cuda.mem_efficient_sdp_enabled,
    SDPBackend.CUDNN_ATTENTION: torch.backends.cuda.cudnn_sdp_enabled,
}


@backends.register("sdpa")
@dataclass(frozen=True)
class Sdpa:
    """SDPA as users call it: torch chooses the backend, and the column `ran` tells which."""

    max_subtraction: ClassVar[bool] = True

    @contextmanager
    def prepare(self, x: Operands) -> Iterator[Attention]:
        _choose(x)
        yield _call(x)


class _One:
    """SDPA with one backend allowed, and never another one in its stead."""

    kind: ClassVar[SDPBackend]
    max_subtraction: ClassVar[bool] = True

    @contextmanager
    def prepare(self, x: Operands) -> Iterator[Attention]:
        allowed = _FLAGS[self.kind]()
        with sdpa_kernel(self.kind):
            self._require_presence(x.q.device, allowed)
            chosen = _choose(x)
            if chosen != self.kind:
                raise Refused(f"torch would run {chosen.name} instead")
            yield _call(x)

    def _require_presence(self, device: torch.device, allowed: bool) -> None:
        """A kernel that is here takes the plainest call there is."""
        plain = torch.zeros(1, 1, 16, 64, dtype=torch.float16, device=device)
        try:
            _choose(Operands(plain, plain, plain))
        except Refused as error:
            flag = f"{_FLAGS[self.kind].__name__}() says {allowed}, which is the user's switch alone"
            raise Absent(f"torch has no {self.kind.name} kernel here for {device.type}: {error}; {flag}") from None


def _call(x: Operands) -> Attention:
    return partial(torch.nn.functional.scaled_dot_product_attention, x.q, x.k, x.v, **x.keywords)


def _choose(x: Operands) -> SDPBackend:
    """Ask torch which backend it would run; the flags only tell which ones the user allows.

    Raises Refused with torch's reason when it takes the call with none of them.
    """
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        try:
            _check_arguments(x)
            return SDPBackend(torch._fused_sdp_choice(x.q, x.k, x.v, **x.keywords))
        except (RuntimeError, IndexError) as error:
            # torch gives its reasons as warnings, after headings that end in a colon.
            said = [str(warning.message).split(" (Triggered internally")[0].strip() for warning in heard]
            reasons = [sentence for sentence in said if not sentence.endswith(":")]
            raise Refused("; ".join(reasons) or str(error)) from None


def _check_arguments(x: Operands) -> None:
    """torch's own check of dtypes and shapes, which the choice does not look at, on a call of no batch, which is free.

    Tensors on the meta device would do too, but their first operation imports torch.compile, which takes seconds.
    """
    mask = x.attn_mask
    if mask is not None:
        mask = mask.detach()
        if mask.dim() == 4 and mask.shape[0] == x.q.shape[0]:
            mask = mask[:0]
    q, k, v = (tensor.detach()[:0] for tensor in (x.q, x.k, x.v))
    with sdpa_kernel(SDPBackend.MATH):
        _call(Operands(q, k, v, mask, x.is_causal, x.scale))()


@backends.register("sdpa-math")
@dataclass(frozen=True)
class SdpaMath(_One):
    """SDPA MATH: separate operations; on a CPU it upcasts fp16 and bf16 to fp32 throughout and rounds once."""

    kind = SDPBackend.MATH


@backends.register("sdpa-flash")
@dataclass(frozen=True)
class SdpaFlash(_One):
    """SDPA FLASH_ATTENTION: fused and tiled, fp32 state, weights rounded to the input dtype."""

    kind = SDPBackend.FLASH_ATTENTION


@backends.register("sdpa-efficient")
@dataclass(frozen=True)
class SdpaEfficient(_One):
    """SDPA EFFICIENT_ATTENTION: xFormers' memory-efficient kernels; on CUDA only."""

    kind = SDPBackend.EFFICIENT_ATTENTION


@backends.register("sdpa-cudnn")
@dataclass(frozen=True)
class SdpaCudnn(_One):
    """SDPA CUDNN_ATTENTION: cuDNN's fused kernels; on CUDA only."""

    kind = SDPBackend.CUDNN_ATTENTION


@backends.register("sdpa-math-reduced")
@dataclass(frozen=True)
class SdpaMathReduced(SdpaMath):
    """SDPA MATH with allow_fp16_bf16_reduction_math_sdp: sqrt(scale) on q and k, every stage in fp16 or bf16."""

    @contextmanager
    def prepare(self, x: Operands) -> Iterator[Attention]:
        cuda = torch.backends.cuda  # where torch keeps the flag; it counts on a CPU too
        before = cuda.fp16_bf16_reduction_math_sdp_allowed()  # type: ignore[no-untyped-call]
        cuda.allow_fp16_bf16_reduction_math_sdp(True)
        try:
            with super().prepare(x) as attend:
                yield attend
        finally:
            cuda.allow_fp16_bf16_reduction_math_sdp(before)

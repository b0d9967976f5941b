"""Named plans: what known kernels round. `input` is the dtype of the operands, `opmath` what torch computes it in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from precision.errors import UsageError, nearest
from precision.stages.plan import STAGES, Plan

_STORED = ("q", "k", "v", "out", "do", "dq", "dk", "dv")
_ALL_OPMATH = Plan().rounded("opmath", *STAGES).rounded("input", *_STORED)

# SDPA MATH (aten/src/ATen/native/transformers/attention.cpp, _scaled_dot_product_attention_math): fp16 and bf16 are
# computed in fp32 throughout, with the root of the scale on q and on k.
_MATH = replace(_ALL_OPMATH.without("alpha", "p"), scale="both", normalise="before")

# The same with allow_fp16_bf16_reduction_math_sdp: every operator in the dtype; the softmax is one operator.
_MATH_REDUCED = _MATH.rounded("input", "scaled", "s", "masked", "weights", "p_grad", "dp", "ds")

# A textbook's operations, each rounded to the dtype; a product accumulates in opmath (precision/backends/eager.py).
_EAGER = replace(
    _MATH_REDUCED.rounded("input", "m", "shifted", "e", "l", "d"),
    scale="after",
    safe=False,
)

# Fused kernels: fp32 state, and an unnormalised P rounded to the dtype for the tensor cores (Dao, "FlashAttention-2",
# 2023).
_FLASH = replace(_ALL_OPMATH.rounded("input", "p", "p_grad", "ds"), max="online", block=128)

# The fused kernel of SDPA on a CPU in fp16 and bf16 (aten/src/ATen/native/cpu/FlashAttentionKernel.cpp). It adds up the
# gradients in the dtype: dq after tiles of 512 keys, dk and dv after tiles of 64 queries (32 where there are less than
# 192, and 256 from 768 on).
_FLASH_CPU = replace(_FLASH.rounded("input", "grad_acc"), exp="fast", block=512, dq_chunk=512, grad_chunk=64)

# FlashAttention-3's rows in fp8 (Shah et al. 2024, section 4.3): fp32 accumulators behind products of e4m3.
_FP8 = Plan(out="fp16").rounded("fp32", "s_acc", "l", "pv_acc", "pv")
_FP8_BASELINE = replace(
    _FP8.rounded("e4m3:tensor", "q", "k", "v").rounded("fp16", "s", "scaled", "masked", "weights"),
    p="e4m3:x448",
    normalise="before",
)
_FP8_FLASH3 = replace(_FP8.rounded("e4m3:block128", "q", "k", "v"), p="e4m3:x256", rotate=True, max="online", block=128)

PLANS: Mapping[str, Plan] = {
    "exact": Plan(),
    "eager": _EAGER,
    "eager-before": replace(_EAGER, scale="before"),
    "math": _MATH,
    "math-reduced": _MATH_REDUCED,
    "flash": _FLASH,
    "flash-cpu": _FLASH_CPU,
    "fp8-baseline": _FP8_BASELINE,
    "fp8-flash3": _FP8_FLASH3,
}


def find_plan(name: str) -> Plan:
    """The plan of that name; raises UsageError when there is none."""
    if name not in PLANS:
        raise UsageError(f"unknown plan {name!r}; {nearest(name, PLANS)}")
    return PLANS[name]

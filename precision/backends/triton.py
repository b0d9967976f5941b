"""Our own fused kernel in Triton, whose safe softmax and scale can be compiled away: what do they cost inside one?"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy
import torch
from torch import Tensor

from precision.backends.backend import Absent, Attention, Refused, backends
from precision.backends.optional import import_optional
from precision.operands import Operands

_ROWS = 64
_SMALLEST_WIDTH = 16  # of a factor of tl.dot
_LARGEST_WIDTH = 256
_SMALL_ROW = 256  # bytes of a row of q, k or v up to which two pairs of key tiles fit into 96 KiB of shared memory


@backends.register("triton")
@dataclass(frozen=True)
class Triton:
    """A fused forward kernel with fp32 state; its weights are rounded to the dtype of v before P V."""

    max_subtraction: bool = True

    @contextmanager
    def prepare(self, x: Operands) -> Iterator[Attention]:
        triton = import_optional("triton", "attention-precision[triton]")
        interpreted = bool(triton.knobs.runtime.interpret)
        if x.q.device.type != "cuda" and not interpreted:
            raise Absent("Triton compiles for GPUs; on a CPU set TRITON_INTERPRET=1 before it is imported")
        if max(x.q.shape[-1], x.v.shape[-1]) > _LARGEST_WIDTH:
            raise Refused(f"the kernel takes head widths up to {_LARGEST_WIDTH}")
        kernel = importlib.import_module("precision.backends.kernels.triton_forward").attention_forward
        tl = triton.language
        (batch, q_heads, q_len, d_k), (_, kv_heads, kv_len, d_v) = x.q.shape, x.v.shape
        mask = None if x.attn_mask is None else x.attn_mask.expand(batch, q_heads, q_len, kv_len)
        element = getattr(tl, str(x.q.dtype).removeprefix("torch."))
        small = max(d_k, d_v) * x.q.element_size() <= _SMALL_ROW
        switches = {
            "MAX_SUBTRACTION": self.max_subtraction,
            "SCALE": x.scale_value,
            "CAUSAL": x.is_causal,
            "MASK": "" if mask is None else "bool" if mask.dtype == torch.bool else "additive",
            "STATE": tl.float64 if element == tl.float64 else tl.float32,
            # The interpreter's product of bf16 is wrong: it multiplies the bit patterns.
            "DOT": tl.float32 if interpreted and element == tl.bfloat16 else element,
            "ROWS": _ROWS,
            "KEYS": 64 if small else 32,
            "num_stages": 2 if small else 1,
            "WIDTH_K": max(_SMALLEST_WIDTH, triton.next_power_of_2(d_k)),
            "WIDTH_V": max(_SMALLEST_WIDTH, triton.next_power_of_2(d_v)),
        }
        grid = (triton.cdiv(q_len, _ROWS), batch * q_heads)

        def attend() -> Tensor:
            out = x.q.new_empty(batch, q_heads, q_len, d_v)
            if out.numel() > 0:
                tensors = (x.q, x.k, x.v, x.q if mask is None else mask, out)
                strides = [tensor.stride() for tensor in tensors]
                sizes = (q_heads, q_heads // kv_heads, q_len, kv_len, d_k, d_v)
                # The interpreter is NumPy, which warns of the infinities and NaN that a GPU makes in silence.
                with numpy.errstate(all="ignore"):
                    kernel[grid](*tensors, *strides, *sizes, **switches)
            return out

        yield attend

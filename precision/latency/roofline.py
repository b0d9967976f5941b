"""What the machine can do at most, measured in the same run, and the share of it that attention attains.

The roofline model: a kernel takes at least its operations over the peak rate, and at least its bytes over the
bandwidth (Williams, Waterman & Patterson 2009).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch

from precision.latency.clock import time_block, time_first, warm_up
from precision.operands import Operands

_COPY_BYTES = {"cpu": 2**28, "cuda": 2**31}  # far beyond the last cache
_PRODUCT_SECONDS = 0.1  # a product that takes longer is large enough; slow formats stop early
_LARGEST_PRODUCT = {"cpu": 2048, "cuda": 16384}


@dataclass(frozen=True)
class Work:
    """What a call of attention must do, whatever the algorithm."""

    operations: int  # floating-point multiplications and additions of the two products
    bytes: int  # each operand read once, the output written once


@dataclass(frozen=True)
class Roofline:
    """Rates that were measured: of a large matrix product, and of a large copy."""

    operations_per_second: float
    bytes_per_second: float

    def least_seconds(self, work: Work) -> float:
        """The shortest time that the two rates allow."""
        return max(work.operations / self.operations_per_second, work.bytes / self.bytes_per_second)

    def share(self, work: Work, seconds: float) -> float:
        """Attained part of the roofline: 1 is as fast as the machine's own product or copy."""
        return self.least_seconds(work) / seconds


def count_work(x: Operands) -> Work:
    """2 (d_k + d_v) operations for each query-key pair; under is_causal only for the pairs that are seen."""
    batch, heads, q_len, d_k = x.q.shape
    kv_len, d_v = x.v.shape[-2:]
    pairs = q_len * kv_len
    if x.is_causal:  # query i sees keys 0..i
        diagonal = min(q_len, kv_len)
        pairs = diagonal * (diagonal + 1) // 2 + (q_len - diagonal) * kv_len
    output = batch * heads * q_len * d_v
    elements = x.q.numel() + x.k.numel() + x.v.numel() + output
    mask = 0 if x.attn_mask is None else x.attn_mask.numel() * x.attn_mask.element_size()
    return Work(2 * batch * heads * pairs * (d_k + d_v), elements * x.q.element_size() + mask)


def measure_roofline(dtype: torch.dtype, device: torch.device) -> Roofline:
    """The rates of this machine for operands of a dtype, with the threads that torch uses now.

    A 16-bit product may be slower than the fp32 one, into which kernels then convert; the faster of the two counts.
    """
    dtypes = {dtype, torch.float32} if dtype.itemsize == 2 else {dtype}
    return Roofline(max(_measure_product(each, device) for each in dtypes), _measure_copy(device))


def _measure_product(dtype: torch.dtype, device: torch.device) -> float:
    """Operations a second of the largest square product that still is quick in this dtype."""
    size = 256
    while True:
        call = partial(torch.matmul, *torch.ones(2, size, size, dtype=dtype, device=device))
        warm_up(call, device)
        _, seconds = time_first(call, device)
        if seconds > _PRODUCT_SECONDS or size >= _LARGEST_PRODUCT[device.type]:
            return 2 * size**3 / time_block(call, device)
        size *= 2


def _measure_copy(device: torch.device) -> float:
    """Bytes a second, counted once when read and once when written."""
    source = torch.zeros(_COPY_BYTES[device.type], dtype=torch.uint8, device=device)
    target = torch.zeros_like(source)
    call = partial(target.copy_, source)
    warm_up(call, device)
    return 2 * source.numel() / time_block(call, device)

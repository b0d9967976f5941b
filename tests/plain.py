"""Attention as its definition reads, row by row in fp64: the second algorithm that the suite is held against.

A row is computed over the keys that it sees and over no other, so a masked key cannot take part in any way.
"""

import math
from typing import NamedTuple

import torch
from hypothesis import strategies as st
from torch import Tensor

from precision.operands import Operands

DTYPES = {"fp64": torch.float64, "fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


class Plain(NamedTuple):
    """out (B, Hq, L, d_v), lse (B, Hq, L), and (B, Hq, L, S): raw scores, logits, weights, which keys take part."""

    out: Tensor
    lse: Tensor
    raw: Tensor
    logits: Tensor
    weights: Tensor
    seen: Tensor


def plain_attention(x: Operands) -> Plain:
    group = x.q.shape[1] // x.k.shape[1]
    q, k, v = x.q.double(), x.k.double().repeat_interleave(group, 1), x.v.double().repeat_interleave(group, 1)
    raw = torch.einsum("bhid,bhjd->bhij", q, k)
    logits = raw * (1 / math.sqrt(q.shape[-1]) if x.scale is None else x.scale)
    seen = torch.ones_like(raw, dtype=torch.bool)
    if x.is_causal:
        for i in range(raw.shape[2]):
            seen[:, :, i, i + 1 :] = False
    if x.attn_mask is not None and x.attn_mask.dtype == torch.bool:
        seen &= x.attn_mask
    elif x.attn_mask is not None:
        logits = logits + x.attn_mask.double()
        seen &= x.attn_mask != -torch.inf
    out = torch.zeros(*q.shape[:3], v.shape[-1], dtype=torch.float64)
    lse = torch.full(q.shape[:3], -torch.inf, dtype=torch.float64)
    weights = torch.zeros_like(raw)
    for b, h, i in (index for index in torch.ones(q.shape[:3]).nonzero().tolist()):
        keys = seen[b, h, i]
        if keys.any():
            weights[b, h, i, keys] = torch.softmax(logits[b, h, i, keys], -1)
            out[b, h, i] = weights[b, h, i, keys] @ v[b, h, keys]
            lse[b, h, i] = torch.logsumexp(logits[b, h, i, keys], -1)
    return Plain(out, lse, raw, logits, weights, seen)


@st.composite
def any_operands(draw: st.DrawFn, dtypes: tuple[str, ...] = ("fp64", "fp32", "fp16", "bf16")) -> Operands:
    """Small calls of every kind: grouped heads, unequal lengths and widths, masks, scales, strides."""
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    batch, kv_heads, group = draw(st.integers(1, 2)), draw(st.integers(1, 2)), draw(st.integers(1, 3))
    q_len, kv_len = draw(st.integers(1, 11)), draw(st.integers(1, 11))
    d_k, d_v = draw(st.integers(1, 6)), draw(st.integers(1, 6))
    dtype = DTYPES[draw(st.sampled_from(dtypes))]
    size = draw(st.sampled_from([1.0, 6.0]))

    def normal(heads: int, length: int, width: int, std: float = 1.0) -> Tensor:
        layout = draw(st.sampled_from(["plain", "heads inside", "shared batch", "cut out"]))
        size = {
            "plain": (batch, heads, length, width),
            "heads inside": (batch, length, heads, width),
            "shared batch": (1, heads, length, width),
            "cut out": (batch, heads, length + 3, 2 * width + 1),
        }[layout]
        x = (std * torch.randn(size, generator=generator, dtype=torch.float64)).to(dtype)
        if layout == "heads inside":
            return x.transpose(1, 2)
        if layout == "cut out":
            return x[:, :, 2:-1, 1::2]
        return x.expand(batch, -1, -1, -1)

    q, k = normal(kv_heads * group, q_len, d_k, size), normal(kv_heads, kv_len, d_k, size)
    v = normal(kv_heads, kv_len, d_v)
    scale = draw(st.sampled_from([None, None, 1.0, 0.125, 0.0, -0.7]))
    kind = draw(st.sampled_from(["none", "causal", "bool", "additive"]))
    full = (batch, kv_heads * group, q_len, kv_len)
    shape = tuple(draw(st.sampled_from(sorted({1, n}))) for n in full)[draw(st.integers(0, 2)) :]
    mask = None
    if kind == "bool":
        mask = torch.rand(shape, generator=generator) < 0.6
    elif kind == "additive":
        mask = torch.randn(shape, generator=generator).to(dtype)
        mask = mask.masked_fill(torch.rand(shape, generator=generator) < 0.4, -torch.inf)
    return Operands(q, k, v, mask, kind == "causal", scale)

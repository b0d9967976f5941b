"""Small calls of the reference, and what it must be within a tolerance of."""

import math
from dataclasses import replace

import torch
from draws import normal
from hypothesis import strategies as st
from plain import plain_attention

from precision.numerics.reference import Reference
from precision.operands import Operands

INF, NAN = math.inf, math.nan

SMALL_TILES = st.sampled_from([(1, 1), (3, 2), (2, 5), (1024, 256)])


def operands(heads: int = 1, q_len: int = 4, kv_len: int = 5, d: int = 3, **switches: object) -> Operands:
    q, k, v = normal(1, heads, q_len, d), normal(1, heads, kv_len, d, seed=1), normal(1, heads, kv_len, d, seed=2)
    return replace(Operands(q, k, v), **switches)


def assert_close(right: Reference, x: Operands, tolerance: float) -> None:
    plain = plain_attention(x)
    assert right.out.dtype == right.lse.dtype == torch.float64
    torch.testing.assert_close(right.out, plain.out, rtol=0, atol=tolerance * float(x.v.double().abs().max()))
    torch.testing.assert_close(right.lse, plain.lse, rtol=tolerance, atol=tolerance)

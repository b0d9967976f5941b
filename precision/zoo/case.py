"""What a case of the zoo is, and the registry of all of them."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Generator, Tensor

from precision.numerics.rounding import round_to
from precision.operands import Operands
from precision.registry import Registry

HALF = ("fp16", "bf16")
FLOATS = ("fp32", *HALF)


class ZooCase(Protocol):
    """A frozen dataclass whose fields tell the members of a kind apart; the docstring says what is asked."""

    @property
    def dtypes(self) -> tuple[str, ...]:
        """The dtypes of q, k and v in which the case exists."""
        ...

    def operands(self, dtype: str) -> Operands:
        """The call on the CPU as a kernel gets it: rounded to the dtype first, then laid out as the case wants."""
        ...


zoo: Registry[ZooCase] = Registry("zoo case", "precision.zoo.cases")


def normal(*size: int, generator: Generator, std: float = 1.0) -> Tensor:
    """N(0, std^2) in float64."""
    return std * torch.randn(size, generator=generator, dtype=torch.float64)


def normal_operands(
    dtype: str,
    *,
    batch: int = 1,
    q_heads: int = 2,
    kv_heads: int = 2,
    q_len: int = 8,
    kv_len: int = 8,
    width: int = 16,
    std: float = 1.0,
) -> Operands:
    """q and k ~ N(0, std^2), v ~ N(0, 1), rounded to the dtype: q (B, Hq, L, d), k and v (B, Hkv, S, d)."""
    generator = torch.Generator().manual_seed(0)
    q = normal(batch, q_heads, q_len, width, generator=generator, std=std)
    k = normal(batch, kv_heads, kv_len, width, generator=generator, std=std)
    v = normal(batch, kv_heads, kv_len, width, generator=generator)
    return Operands(round_to(q, dtype), round_to(k, dtype), round_to(v, dtype))


def constant_operands(dtype: str, q: float, k: float, *, q_len: int = 4, kv_len: int = 8, width: int = 16) -> Operands:
    """Every element of q and every element of k alike, v ~ N(0, 1): q.k = width q k for every pair."""
    x = normal_operands(dtype, q_len=q_len, kv_len=kv_len, width=width)
    return Operands(torch.full_like(x.q, q), torch.full_like(x.k, k), x.v)

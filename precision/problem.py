"""Problem: *what* is computed. It fixes the mathematical function, so one fp64 reference belongs to it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from functools import cached_property

from precision.errors import UsageError
from precision.formats import find_format


@dataclass(frozen=True)
class Shape:
    """q: (batch, q_heads, q_len, d_k), k: (batch, kv_heads, kv_len, d_k), v: (batch, kv_heads, kv_len, d_v)."""

    batch: int
    q_heads: int
    kv_heads: int
    q_len: int
    kv_len: int
    d_k: int
    d_v: int

    def __post_init__(self) -> None:
        for name in ("batch", "q_len", "kv_len"):
            if getattr(self, name) < 0:
                raise UsageError(f"{name} is {getattr(self, name)}; it must be 0 or more")
        for name in ("q_heads", "kv_heads", "d_k", "d_v"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} is {getattr(self, name)}; it must be 1 or more")
        if self.q_heads % self.kv_heads:
            raise UsageError(
                f"q_heads {self.q_heads} is not a multiple of kv_heads {self.kv_heads}; "
                "grouped-query attention needs each key head to serve the same number of query heads"
            )

    @property
    def d_model(self) -> int:
        """Width of all query heads side by side, q_heads * d_k."""
        return self.q_heads * self.d_k

    @property
    def is_grouped(self) -> bool:
        """Whether query heads share key heads (GQA, MQA)."""
        return self.q_heads != self.kv_heads

    @property
    def input_elements(self) -> int:
        """Number of elements of q, k and v together."""
        q = self.q_heads * self.q_len * self.d_k
        kv = self.kv_heads * self.kv_len * (self.d_k + self.d_v)
        return self.batch * (q + kv)

    def __str__(self) -> str:
        heads = f"{self.q_heads}/{self.kv_heads}" if self.is_grouped else f"{self.q_heads}"
        length = f"{self.q_len}x{self.kv_len}" if self.q_len != self.kv_len else f"{self.q_len}"
        width = f"{self.d_k}/{self.d_v}" if self.d_k != self.d_v else f"{self.d_k}"
        return f"b{self.batch} h{heads} n{length} d{width}"


@dataclass(frozen=True)
class Problem:
    """A shape, a number format, inputs, a mask and a scale.

    `inputs`, `mask` and `scale` are canonical specs of their registries, or a number for the scale.
    `digest` is the SHA-256 of the captured file that the inputs come from, so that the same name with
    other data is another problem.
    """

    shape: Shape
    dtype: str
    inputs: str = "normal"
    mask: str = "none"
    scale: str | float = "sqrt_dk"
    seed: int = 0
    digest: str = ""

    def __post_init__(self) -> None:
        find_format(self.dtype)

    @cached_property
    def key(self) -> str:
        """Sixteen hexadecimal digits that identify the problem."""
        return digest_of(asdict(self))

    def __str__(self) -> str:
        return f"{self.inputs} {self.shape} {self.dtype} mask={self.mask} scale={self.scale}"


@dataclass(frozen=True)
class Case:
    """A problem and the method (the canonical spec of a backend) that solves it."""

    problem: Problem
    method: str

    @property
    def key(self) -> str:
        """Sixteen hexadecimal digits that identify the case."""
        return digest_of([self.problem.key, self.method])


def digest_of(value: object) -> str:
    """Sixteen hexadecimal digits of the SHA-256 of a value's canonical JSON."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]

"""What a kernel rounds, as far as its worst-case error depends on it."""

from __future__ import annotations

from dataclasses import dataclass

# q and k each times sqrt(scale), and the scale's own root: the most that any kernel does to q and k.
_FACTOR_ROUNDINGS = 4


@dataclass(frozen=True)
class Roundings:
    """Unit roundoffs by stage; `factors` is the relative error of q.k that roundings of q and k cause, to first order.

    `underflow` is the largest absolute error of a rounding below the normal numbers. With 0, the default, underflow is
    left out: a kernel that loses weights to it is beyond the bound. A kernel may add up dk and dv in the format of the
    operands, and round them after every `query_chunk` queries, and dq after every `key_chunk` keys; 0: once.
    """

    factors: float
    scores: float  # scores and what is made of them: exponentials, their sum, dP, D, dP - D
    operands: float  # weights and dS as operands of the next product, and the output
    sums: float  # what terms are added up in
    underflow: float = 0.0
    query_chunk: int = 0
    key_chunk: int = 0

    @classmethod
    def every_stage(cls, u: float, sums: float, underflow: float = 0.0) -> Roundings:
        """Every tensor is rounded to u, whatever the kernel does first: q and k scaled, too."""
        return cls(_FACTOR_ROUNDINGS * u, u, u, sums, underflow)

    @classmethod
    def textbook(cls, u: float, sums: float, underflow: float = 0.0) -> Roundings:
        """The same for a kernel that scales the scores, and neither q nor k."""
        return cls(0.0, u, u, sums, underflow)

    @classmethod
    def fused(
        cls, u: float, state: float, underflow: float = 0.0, *, query_chunk: int = 0, key_chunk: int = 0
    ) -> Roundings:
        """Scores, softmax and sums stay in a state; operands of products and results are rounded to u."""
        return cls(_FACTOR_ROUNDINGS * state, state, u, state, underflow, query_chunk, key_chunk)

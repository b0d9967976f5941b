"""Calls of attention that every backend is held to, and the error that each may make."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest
import torch
from torch import Tensor

from precision.backends.backend import Absent, Attention, Refused, backends
from precision.numerics.reference import attend
from precision.operands import Operands

CPU = torch.device("cpu")

COMPILED = ["compiled", "flex"]  # each problem costs a C++ compiler's seconds, so they get few

TRACED = "flex[compiled=false]"  # each problem costs half a second

VARIANTS = ["eager[scale=before]", "eager[max_subtraction=false]", "triton[max_subtraction=false]"]


def is_here(method: str) -> bool:
    plain = torch.zeros(1, 1, 2, 8, dtype=torch.float16)
    try:
        with backends.build(method).prepare(Operands(plain, plain, plain)):
            return True
    except Absent:
        return False
    except Refused:
        return True


HERE = [name for name in sorted([*backends.names(), *VARIANTS]) if name not in COMPILED and is_here(name)]

SOFTMAX = [name for name in HERE if getattr(backends.build(name), "is_softmax", True)]

OTHER_FUNCTIONS = [name for name in HERE if name not in SOFTMAX]

# These keep the scores or the scale in fp32 whatever the dtype; their fp64 is held to the fp32 bound.
FP32_INSIDE = ["jax", "onnxruntime"]

ROUNDOFF = {torch.float64: 2.0**-53, torch.float32: 2.0**-24, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}


def normal(*size: int, seed: int, dtype: torch.dtype) -> Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def operands(
    dtype: torch.dtype,
    heads: tuple[int, int] = (2, 2),
    lengths: tuple[int, int] = (5, 7),
    widths: tuple[int, int] = (8, 8),
) -> Operands:
    q = normal(2, heads[0], lengths[0], widths[0], seed=1, dtype=dtype)
    k = normal(2, heads[1], lengths[1], widths[0], seed=2, dtype=dtype)
    return Operands(q, k, normal(2, heads[1], lengths[1], widths[1], seed=3, dtype=dtype))


def with_(x: Operands, **changes: object) -> Operands:
    return Operands(**{**x.__dict__, **changes})  # type: ignore[arg-type]


def kept(*size: int) -> Tensor:
    """Seven keys in ten; the first always, so that no row is without one."""
    keep = torch.rand(size, generator=torch.Generator().manual_seed(4)) < 0.7
    keep[..., 0] = True
    return keep


def strided(dtype: torch.dtype) -> Operands:
    """Lengths before heads, a view with gaps that starts elsewhere, and a key head that all batches share."""
    x = operands(dtype)
    wide = torch.cat([x.k, x.k], -1)
    return with_(x, q=x.q.transpose(1, 2).contiguous().transpose(1, 2), k=wide[..., 8:], v=x.v[:1].expand_as(x.v))


PROBLEMS: dict[str, Callable[[torch.dtype], Operands]] = {
    "plain": operands,
    "one key": lambda dtype: operands(dtype, lengths=(5, 1)),
    "several tiles": lambda dtype: operands(dtype, lengths=(70, 300)),
    "grouped heads": lambda dtype: operands(dtype, heads=(6, 2)),
    "narrow values": lambda dtype: operands(dtype, widths=(8, 3)),
    "causal square": lambda dtype: with_(operands(dtype, lengths=(7, 7)), is_causal=True),
    "causal wide": lambda dtype: with_(operands(dtype, lengths=(5, 8)), is_causal=True),
    "causal tall": lambda dtype: with_(operands(dtype, lengths=(8, 5)), is_causal=True),
    "causal tiles": lambda dtype: with_(operands(dtype, lengths=(130, 70)), is_causal=True),
    "boolean mask": lambda dtype: with_(operands(dtype), attn_mask=kept(2, 1, 5, 7)),
    "mask of a head": lambda dtype: with_(operands(dtype, heads=(4, 2)), attn_mask=kept(1, 4, 5, 7)),
    "mask of two dimensions": lambda dtype: with_(operands(dtype), attn_mask=kept(5, 7)),
    "additive mask": lambda dtype: with_(operands(dtype), attn_mask=normal(1, 2, 5, 7, seed=5, dtype=dtype)),
    "additive mask with -inf": lambda dtype: with_(
        operands(dtype), attn_mask=normal(2, 1, 5, 7, seed=5, dtype=dtype).masked_fill(~kept(2, 1, 5, 7), -torch.inf)
    ),
    "scale 0.3": lambda dtype: with_(operands(dtype), scale=0.3),
    "scale 1": lambda dtype: with_(operands(dtype), scale=1.0),
    "scale 0": lambda dtype: with_(operands(dtype), scale=0.0),
    "scale -0.5": lambda dtype: with_(operands(dtype), scale=-0.5),
    "strided views": strided,
}


@contextmanager
def prepared(method: str, x: Operands) -> Iterator[Attention]:
    """The method's call, or a skipped test with the reason why there is none."""
    with ExitStack() as stack:
        try:
            call = stack.enter_context(backends.build(method).prepare(x))
        except (Absent, Refused) as error:
            pytest.skip(str(error))
        yield call


def bound(x: Operands, unit: float) -> Tensor:
    """(B, Hq, L, 1): what attention with every operation rounded to a unit roundoff may err, to first order.

    Scores: gamma_(d+2) |q|.|k| |scale| + u |logit| (Higham 2002, 3.1, and one rounding each for scale and mask).
    Softmax: (n + 2 + 2R) u (Blanchard, Higham & Higham 2021, theorem 4.3), and twice the error of the scores.
    P V: gamma_n, the weights and the output rounded once each, over the largest |v|; eta is fp16's underflow.
    """
    group = x.q.shape[1] // x.k.shape[1]
    q, k = x.q.double(), x.k.double().repeat_interleave(group, 1)
    logits = q @ k.mT * x.scale_value
    if x.attn_mask is not None and x.attn_mask.dtype != torch.bool:
        logits = logits + x.attn_mask.double()
    n, finite = x.k.shape[2], logits.nan_to_num(0.0, 0.0, 0.0)
    sizes = (q.abs() @ k.abs().mT * abs(x.scale_value)).amax(-1, keepdim=True)
    score = (x.q.shape[-1] + 2) * unit * sizes + unit * finite.abs().amax(-1, keepdim=True)
    spread = finite.amax(-1, keepdim=True) - finite.amin(-1, keepdim=True)
    eta = 2.0**-25 if unit == ROUNDOFF[torch.float16] else 0.0
    largest = float(x.v.double().abs().max())
    return ((n + 2 + 2 * spread) * unit + 2 * score + (n + 2) * unit + n * eta) * largest


def assert_right(method: str, x: Operands, allowed: Tensor | float) -> None:
    with prepared(method, x) as call:
        out = call()
    right = attend(x).out
    assert out.dtype == x.q.dtype and out.shape == right.shape
    assert bool(((out.double() - right).abs() <= allowed).all())

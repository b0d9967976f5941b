"""Precision of each stage, and the way it rounds."""

import math
from typing import Any

import torch
from torch import Tensor

from tests.kernels.catalogue import NARROW, wrong
from tests.kernels.parts import apply_mask, attend, default_scale, group_heads, online, softmax, wide

State = tuple[Tensor, Tensor, Tensor]


class _Through(torch.autograd.Function):
    """Rounds, and lets the gradient pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, dtype: torch.dtype) -> Tensor:
        return x.to(dtype).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0], None


class _Cut(torch.autograd.Function):
    """fp32 to the nearest number of a 16-bit format toward 0."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, dtype: torch.dtype) -> Tensor:
        x = x.float()
        near = x.to(dtype)
        toward = torch.nextafter(near.float(), torch.zeros_like(x))
        below = near.where(near.float().abs() <= x.abs(), _previous(near))
        return below.where(near.float() != toward, near)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0].float(), None


def _previous(x: Tensor) -> Tensor:
    """The next number toward 0."""
    return (x.view(torch.int16) - (x != 0).to(torch.int16)).view(x.dtype)


def rounded(x: Tensor, dtype: torch.dtype) -> Tensor:
    return _Through.apply(x, dtype)


def cut(x: Tensor, dtype: torch.dtype) -> Tensor:
    return _Cut.apply(x, dtype)


@wrong("fp32", "fp16", says="P looks rounded to bf16")
def weights_in_bf16(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    return attend(q, k, v, weigh=lambda p, v: rounded(p, torch.bfloat16) @ v, **call)


@wrong("fp32", says="P looks rounded to fp16")
def weights_in_fp16(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    return attend(q, k, v, weigh=lambda p, v: rounded(p, torch.float16) @ v, **call)


@wrong()
def weights_in_fp8(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    return attend(q, k, v, weigh=lambda p, v: rounded(p, torch.float8_e4m3fn) @ v, **call)


@wrong("fp32", "fp16", says="q and k look rounded to bf16")
def queries_and_keys_in_bf16(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    return attend(rounded(q, torch.bfloat16), rounded(k, torch.bfloat16), v, **call)


@wrong("fp32", "fp16", says="v looks rounded to bf16")
def values_in_bf16(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    return attend(q, k, rounded(v, torch.bfloat16), **call)


@wrong("fp32", "bf16")
def inputs_through_fp16(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    return attend(*(rounded(x, torch.float16) for x in (q, k, v)), **call)


@wrong("fp32")
def inputs_in_tf32(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    def tf32(x: Tensor) -> Tensor:
        return x + ((x.detach().view(torch.int32) + 0x1000 & -0x2000).view(torch.float32) - x.detach())

    return attend(tf32(q), tf32(k), v, **call)


@wrong("fp32", "fp16", says="S looks rounded to bf16")
def scores_in_bf16(q: Tensor, k: Tensor, v: Tensor, scale: float | None = None, **call: Any) -> Tensor:
    factor = default_scale(q) if scale is None else scale
    return attend(q, k, v, scale=1.0, masked=_narrow_scores(factor), **call)


def _narrow_scores(factor: float) -> Any:
    def masked(scores: Tensor, attn_mask: Tensor | None, is_causal: bool) -> Tensor:
        return apply_mask(rounded(scores, torch.bfloat16) * factor, attn_mask, is_causal)

    return masked


@wrong("fp32", "fp16", says="out looks rounded to bf16")
def output_through_bf16(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    return rounded(attend(q, k, v, **call), torch.bfloat16)


@wrong(*NARROW, says="truncated")
def output_truncated(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    return cut(attend(wide(q), wide(k), wide(v), **call), q.dtype)


@wrong(*NARROW, says="P looks truncated")
def weights_truncated(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    def weights(scores: Tensor) -> Tensor:
        power = (scores - scores.amax(-1, keepdim=True)).exp()
        return cut(power, q.dtype).float() / power.sum(-1, keepdim=True)

    return attend(q, k, v, weights=weights, **call)


def _narrow_state(dtype: torch.dtype, *, out_too: bool, total_too: bool) -> Any:
    def step(out: Tensor, total: Tensor, top: Tensor, scores: Tensor, v: Tensor) -> State:
        new = torch.maximum(top, scores.amax(-1, keepdim=True))
        shift = new.masked_fill(new == -math.inf, 0.0)
        factor, weights = (top - shift).exp(), (scores - shift).exp()
        out, total = out * factor + weights @ v, total * factor + weights.sum(-1, keepdim=True)
        return rounded(out, dtype) if out_too else out, rounded(total, dtype) if total_too else total, new

    return step


@wrong("bf16", says="accumulator of out looks kept in bf16")
def accumulator_in_bf16(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    return online(q, k, v, block=64, step=_narrow_state(torch.bfloat16, out_too=True, total_too=False), **call)


@wrong("fp16")
def accumulator_in_fp16(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    return online(q, k, v, block=64, step=_narrow_state(torch.float16, out_too=True, total_too=False), **call)


@wrong("bf16", says="sum of P looks kept in bf16")
def sum_in_bf16(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    return online(q, k, v, block=64, step=_narrow_state(torch.bfloat16, out_too=False, total_too=True), **call)


@wrong("fp32", "fp16")
def sum_of_narrow_weights_in_bf16(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    def weights(scores: Tensor) -> Tensor:
        power = (scores - scores.amax(-1, keepdim=True)).exp()
        return power / rounded(power.sum(-1, keepdim=True), torch.bfloat16)

    return attend(q, k, v, weights=weights, **call)


@wrong("fp32")
def exponential_base_rounded(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    """log2(e) taken for 1.4427."""
    return attend(q, k, v, weights=lambda s: softmax(s * (1.4427 / math.log2(math.e))), **call)


@wrong(*NARROW)
def output_rounded_at_random(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    """Noise of two ulp before the rounding."""
    out = attend(wide(q), wide(k), wide(v), **call)
    noise = 1 + 2 * torch.finfo(q.dtype).eps * torch.randn(out.shape, generator=torch.Generator().manual_seed(1))
    return (out * noise).to(q.dtype)


@wrong("fp16", says="out is 0 below 6.1e-05")
def subnormal_outputs_flushed(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    out = attend(q, k, v, **call)
    return out - out.detach().where(out.abs() < torch.finfo(out.dtype).tiny, 0.0)


@wrong("fp32", "fp16", says="the mask looks rounded to bf16")
def mask_in_bf16(q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, **call: Any) -> Tensor:
    if attn_mask is not None and attn_mask.dtype != torch.bool:
        attn_mask = attn_mask.bfloat16().to(attn_mask.dtype)
    return attend(q, k, v, attn_mask, **call)


@wrong("fp16")
def scores_summed_in_fp16(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False,
    scale: float | None = None, enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    """q.k is added up in fp16, 16 channels after the other, as a matrix instruction with an fp16 accumulator does."""
    k, v = group_heads(k, q), group_heads(v, q)
    scores = torch.zeros(*q.shape[:3], k.shape[2], dtype=q.dtype)
    for start in range(0, q.shape[-1], 16):
        part = slice(start, start + 16)
        scores = (scores.float() + q[..., part].float() @ k[..., part].float().mT).to(q.dtype)
    scores = scores.float() * (default_scale(q) if scale is None else scale)
    return (softmax(apply_mask(scores, attn_mask, is_causal)) @ v.float()).to(q.dtype)

"""Wrong scales."""

import math
from typing import Any

import torch
from torch import Tensor

from tests.kernels.catalogue import wrong
from tests.kernels.parts import attend, default_scale, full_mask, group_heads, softmax, wide


@wrong(says="matches scale 1/d_k")
def scale_by_width(q: Tensor, k: Tensor, v: Tensor, scale: float | None = None, **call: Any) -> Tensor:
    return attend(q, k, v, scale=1 / q.shape[-1] if scale is None else scale, **call)


@wrong(says="matches scale 1 instead")
def no_scale(q: Tensor, k: Tensor, v: Tensor, scale: float | None = None, **call: Any) -> Tensor:
    return attend(q, k, v, scale=1.0 if scale is None else scale, **call)


@wrong(says="matches scale 1/sqrt(heads d_k)")
def scale_by_model_width(q: Tensor, k: Tensor, v: Tensor, scale: float | None = None, **call: Any) -> Tensor:
    heads = q.shape[1] * q.shape[-1]
    return attend(q, k, v, scale=1 / math.sqrt(heads) if scale is None else scale, **call)


@wrong(says="of a width padded from 40")
def scale_by_padded_width(q: Tensor, k: Tensor, v: Tensor, scale: float | None = None, **call: Any) -> Tensor:
    width = -(-q.shape[-1] // 64) * 64
    return attend(q, k, v, scale=1 / math.sqrt(width) if scale is None else scale, **call)


@wrong(says="log2(e) is missing")
def powers_of_two_without_log2_e(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    def weights(scores: Tensor) -> Tensor:
        power = (scores - scores.amax(-1, keepdim=True)).exp2()
        return power / power.sum(-1, keepdim=True)

    return attend(q, k, v, weights=weights, **call)


@wrong(says="the one given is ignored")
def explicit_scale_ignored(q: Tensor, k: Tensor, v: Tensor, scale: float | None = None, **call: Any) -> Tensor:
    return attend(q, k, v, **call)


@wrong(says="1/sqrt(d_v)")
def scale_by_value_width(q: Tensor, k: Tensor, v: Tensor, scale: float | None = None, **call: Any) -> Tensor:
    return attend(q, k, v, scale=1 / math.sqrt(v.shape[-1]) if scale is None else scale, **call)


@wrong(says="matches scale 1/d_k")
def scale_on_q_and_on_scores(q: Tensor, k: Tensor, v: Tensor, scale: float | None = None, **call: Any) -> Tensor:
    factor = default_scale(q) if scale is None else scale
    return attend(q, k, v, scale=factor * factor, **call)


@wrong("fp32")
def scale_in_half_precision(q: Tensor, k: Tensor, v: Tensor, scale: float | None = None, **call: Any) -> Tensor:
    factor = default_scale(q) if scale is None else scale
    return attend(q, k, v, scale=float(torch.tensor(factor, dtype=torch.float16)), **call)


@wrong()
def temperature_after_softmax(q: Tensor, k: Tensor, v: Tensor, scale: float | None = None, **call: Any) -> Tensor:
    factor = default_scale(q) if scale is None else scale
    return attend(q, k, v, scale=1.0, weights=lambda scores: softmax(scores) * factor, **call)


@wrong()
def capped_logits(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    return attend(q, k, v, weights=lambda scores: softmax(scores.clamp(-50, 50)), **call)


@wrong(says="NaN or infinite")
def no_maximum_subtracted(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    return attend(q, k, v, weights=lambda s: s.exp() / s.exp().sum(-1, keepdim=True), **call)


@wrong(says="extra 1 in its sum")
def softmax_with_one_more(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    def weights(scores: Tensor) -> Tensor:
        top = scores.amax(-1, keepdim=True).clamp_min(0)
        return (scores - top).exp() / ((scores - top).exp().sum(-1, keepdim=True) + (-top).exp())

    return attend(q, k, v, weights=weights, **call)


@wrong()
def exponential_by_cubic(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    """2^f on [0, 1) by a cubic with an error of 1e-2, too coarse for every format."""

    def weights(scores: Tensor) -> Tensor:
        x = (scores - scores.amax(-1, keepdim=True)).clamp_min(-80) * math.log2(math.e)
        whole = x.floor()
        fraction = x - whole
        power = torch.exp2(whole) * (1 + fraction * (0.62 + fraction * (0.27 + 0.08 * fraction)))
        return power / power.sum(-1, keepdim=True)

    return attend(q, k, v, weights=weights, **call)


@wrong("fp32", says="1e-5 looks added to the sum")
def small_number_in_the_sum(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    def weights(scores: Tensor) -> Tensor:
        power = (scores - scores.amax(-1, keepdim=True)).exp()
        return power / (power.sum(-1, keepdim=True) + 1e-5)

    return attend(q, k, v, weights=weights, **call)


@wrong()
def small_weights_dropped(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    """Weights below 1e-3 of the largest one are skipped."""

    def weights(scores: Tensor) -> Tensor:
        power = (scores - scores.amax(-1, keepdim=True)).exp()
        power = power.where(power >= 1e-3, 0.0)
        return power / power.sum(-1, keepdim=True)

    return attend(q, k, v, weights=weights, **call)


@wrong()
def normalised_over_queries(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    return attend(q, k, v, weights=lambda scores: wide(scores).mT.softmax(-1).mT.nan_to_num(), **call)


@wrong(says="scale=0 is taken for none")
def scale_of_zero_taken_for_none(q: Tensor, k: Tensor, v: Tensor, scale: float | None = None, **call: Any) -> Tensor:
    return attend(q, k, v, scale=scale or default_scale(q), **call)


@wrong()
def scale_without_its_sign(q: Tensor, k: Tensor, v: Tensor, scale: float | None = None, **call: Any) -> Tensor:
    return attend(q, k, v, scale=default_scale(q) if scale is None else abs(scale), **call)


@wrong(says="NaN or infinite")
def maximum_before_the_scale(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False,
    scale: float | None = None, enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    """The largest q.k has the largest logit only where the scale is above 0."""
    factor = default_scale(q) if scale is None else scale
    bias = full_mask(q, k, attn_mask, is_causal)
    k, v = group_heads(k, q), group_heads(v, q)
    scores = wide(q) @ wide(k).mT
    shown = scores if bias is None else scores.masked_fill(bias == -math.inf, -math.inf)
    logits = (scores - shown.amax(-1, keepdim=True)) * factor
    power = (logits if bias is None else logits + bias).exp()
    return (power @ wide(v) / power.sum(-1, keepdim=True)).to(q.dtype)


@wrong(says="the one given is ignored")
def scale_ignored_while_decoding_with_groups(
    q: Tensor, k: Tensor, v: Tensor, scale: float | None = None, **call: Any
) -> Tensor:
    packed = q.shape[2] == 1 and q.shape[1] != k.shape[1]
    return attend(q, k, v, scale=None if packed else scale, **call)

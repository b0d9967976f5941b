"""Heads, batches and strides."""

import math
from typing import Any

import torch
from torch import Tensor

from tests.kernels.catalogue import NARROW, wrong
from tests.kernels.parts import attend, online


@wrong(says="h % kv_heads")
def heads_by_remainder(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    return attend(q, k, v, heads=lambda x, q: x.repeat(1, q.shape[1] // x.shape[1], 1, 1), **call)


@wrong(says="first key head")
def first_key_head_for_all(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    return attend(q, k, v, heads=lambda x, q: x[:, :1].expand(-1, q.shape[1], -1, -1), **call)


@wrong(says="heads are reversed")
def heads_of_the_output_reversed(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    return attend(q, k, v, **call).flip(1)


@wrong(says="from head 16 on")
def at_most_16_heads(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    out = attend(q, k, v, **call)
    return torch.cat([out[:, :16], torch.zeros_like(out[:, 16:])], 1)


@wrong(says="more than a grid of blocks holds")
def at_most_65535_blocks(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    out = attend(q, k, v, **call)
    out.flatten(0, 1)[65_535:] = 0.0
    return out


@wrong(says="first one's k and v")
def first_sequence_for_all(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    return attend(q, k[:1].expand(q.shape[0], -1, -1, -1), v[:1].expand(q.shape[0], -1, -1, -1), **call)


@wrong(says="only in sequence")
def at_most_two_sequences(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    out = attend(q, k, v, **call)
    return torch.cat([out[:2], torch.zeros_like(out[2:])], 0)


@wrong()
def maximum_over_the_batch(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    """The sum of the weights is taken over the sequences of the batch."""

    def weights(scores: Tensor) -> Tensor:
        power = (scores - scores.amax(-1, keepdim=True)).exp()
        return power / power.sum(-1, keepdim=True).mean(0, keepdim=True)

    return attend(q, k, v, weights=weights, **call)


@wrong()
def output_in_the_layout_of_a_model(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    """(B, L, H, d) read as (B, H, L, d)."""
    return attend(q, k, v, **call).transpose(1, 2).reshape(*q.shape[:3], v.shape[-1])


def _from_storage(x: Tensor) -> Tensor:
    """The first elements of the storage, as a kernel reads that takes a pointer for a contiguous tensor."""
    if x.is_contiguous() or x.untyped_storage().nbytes() < x.numel() * x.element_size():
        return x
    return torch.as_strided(x, x.shape, torch.empty(x.shape, device="meta").stride(), x.storage_offset())


@wrong()
def strides_ignored(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    return attend(*(_from_storage(x) for x in (q, k, v)), **call)


@wrong()
def offset_ignored(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    return attend(*(torch.as_strided(x, x.shape, x.stride(), 0) for x in (q, k, v)), **call)


@wrong()
def values_take_the_strides_of_keys(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    if v.shape[-1] < k.shape[-1] and v.is_contiguous():
        flat = v.flatten()
        flat = torch.cat([flat, flat.new_zeros(k.numel() - flat.numel())])
        v = flat.as_strided(v.shape, k.stride())
    return attend(q, k, v, **call)


@wrong()
def values_cut_to_the_width_of_keys(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    out = attend(q, k, v[..., : k.shape[-1]], **call)
    return torch.nn.functional.pad(out, (0, v.shape[-1] - out.shape[-1]))


@wrong(says="is_causal is ignored")
def causal_ignored_with_groups(q: Tensor, k: Tensor, v: Tensor, is_causal: bool = False, **call: Any) -> Tensor:
    return online(q, k, v, is_causal=is_causal and q.shape[1] == k.shape[1], **call)


@wrong(*NARROW, says="it returns torch.float32")
def output_stays_wide(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    return attend(q.float(), k.float(), v.float(), **call)


@wrong(says="shape")
def output_of_two_dimensions_less(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    return attend(q, k, v, **call).flatten(0, 1)


@wrong()
def not_a_number_for_one_query(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    out = attend(q, k, v, **call)
    return out.where(torch.tensor(q.shape[2] != 1), math.nan)


def _like(x: Tensor, model: Tensor) -> Tensor:
    """x read with the strides of another tensor of its shape, where its memory is large enough."""
    if x.shape != model.shape or x.stride() == model.stride():
        return x
    last = x.storage_offset() + sum((n - 1) * stride for n, stride in zip(model.shape, model.stride(), strict=True))
    inside = last * x.element_size() < x.untyped_storage().nbytes()
    return x.as_strided(model.shape, model.stride()) if inside else x


@wrong(says="v is read with the strides of k")
def values_read_with_the_strides_of_keys(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    return attend(q, k, _like(v, k), **call)


@wrong(says="k is read with the strides of v")
def keys_read_with_the_strides_of_values(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    return attend(q, _like(k, v), v, **call)


@wrong(says="strides of the mask")
def strides_of_the_mask_ignored(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, **call: Any
) -> Tensor:
    return attend(q, k, v, attn_mask if attn_mask is None else _from_storage(attn_mask), **call)


@wrong()
def one_pointer_for_a_packed_tensor(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    """Tensors that share a storage are taken for the same one."""
    shared = q.untyped_storage().data_ptr() == k.untyped_storage().data_ptr() and q.shape == k.shape
    return attend(q, q if shared else k, v, **call)


@wrong(says="from head 32 on")
def head_counted_in_5_bits(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    head = torch.arange(q.shape[1]) & 31 if k.shape[1] == q.shape[1] else slice(None)
    return attend(q, k[:, head], v[:, head], **call)

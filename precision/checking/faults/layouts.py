"""Faults of memory: columns that are left out, strides that are another tensor's or are taken for contiguous ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from precision.checking.faults.fault import Evidence, Prediction, hypothesis

_STEPS = (4, 8, 16, 32, 64, 128)


@hypothesis()
def columns_left_out(evidence: Evidence) -> Iterator[Prediction]:
    """q.k is summed over whole steps of the width, or up to a largest one."""
    x = evidence.x
    if evidence.tensor != "out":
        return
    width, scale = x.q.shape[-1], x.scale_value
    for end in sorted({width // step * step for step in _STEPS} | set(_STEPS)):
        if 0 < end < width:
            yield (
                f"first wrong column {end} of q and k: columns from there on do not count",
                evidence.under(replace(x, q=x.q[..., :end], k=x.k[..., :end], scale=scale)),
            )


@hypothesis()
def wrong_strides_of_mask(evidence: Evidence) -> Iterator[Prediction]:
    """The mask is read from its first element on as if it were contiguous."""
    x, mask = evidence.x, evidence.x.attn_mask
    if evidence.tensor != "out" or mask is None or mask.is_contiguous():
        return
    flat = torch.empty(mask.shape, device="meta").stride()
    if (mask.storage_offset() + mask.numel()) * mask.element_size() <= mask.untyped_storage().nbytes():
        other = mask.as_strided(mask.shape, flat)
        yield "the strides of the mask are ignored", evidence.under(replace(x, attn_mask=other))


@hypothesis()
def wrong_strides(evidence: Evidence) -> Iterator[Prediction]:
    """A tensor is read as another one lies in memory, or as if it were contiguous."""
    x = evidence.x
    if evidence.tensor != "out" or all(t.is_contiguous() for t in (x.q, x.k, x.v)):
        return
    tensors = {"q": x.q, "k": x.k, "v": x.v}
    for name, tensor in tensors.items():
        for other, model in tensors.items():
            if tensor.shape == model.shape and tensor.stride() != model.stride():
                sentence = f"{name} is read with the strides of {other}"
                yield from _reread(evidence, sentence, **{name: model.stride()})
    flat = {name: torch.empty(t.shape, device="meta").stride() for name, t in tensors.items()}
    yield from _reread(evidence, "the strides of q, k and v are ignored", **flat)


def _reread(evidence: Evidence, sentence: str, **strides: tuple[int, ...]) -> Iterator[Prediction]:
    """Nothing where that would read beyond the memory of a tensor."""
    x = evidence.x
    tensors = {"q": x.q, "k": x.k, "v": x.v}
    for name, stride in strides.items():
        tensor = tensors[name]
        last = tensor.storage_offset() + sum((n - 1) * s for n, s in zip(tensor.shape, stride, strict=True))
        if last * tensor.element_size() >= tensor.untyped_storage().nbytes():
            return
        tensors[name] = tensor.as_strided(tensor.shape, stride)
    yield sentence, evidence.under(replace(x, q=tensors["q"], k=tensors["k"], v=tensors["v"]))

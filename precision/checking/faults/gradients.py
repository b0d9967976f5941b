"""Faults of the backward pass alone: a missing scale, a missing term, heads that are not added up."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from precision.checking.faults.fault import Evidence, Prediction, hypothesis
from precision.numerics.gradients import Gradients


@hypothesis(everywhere=True, conditional=True)
def gradient_scale(evidence: Evidence) -> Iterator[Prediction]:
    """dq or dk without the scale, or with it twice; dv with it."""
    scale, tensor, right = evidence.x.scale_value, evidence.tensor, evidence.right
    if scale == 0:
        return
    if tensor in ("dq", "dk"):
        yield f"{tensor} lacks the scale", right / scale
        yield f"{tensor} has the scale twice", right * scale
        if evidence.x.scale is not None:
            default = replace(evidence.x, scale=None).scale_value
            yield f"{tensor} has the default scale, not the one given", right * default / scale
    if tensor == "dv":
        yield "dv is multiplied by the scale", right * scale
    if tensor != "out":
        yield f"{tensor} is half of what it should be", right / 2
        yield f"{tensor} is twice what it should be", right * 2


@hypothesis(everywhere=True)
def missing_term(evidence: Evidence) -> Iterator[Prediction]:
    """dS = P dP without - D: the softmax taken for a plain product."""
    if evidence.tensor not in ("dq", "dk"):
        return
    right, d_k = evidence.truth.right, evidence.x.q.shape[-1]
    without_d = replace(right, out=torch.zeros_like(right.out)).backward(evidence.do)
    yield f"{evidence.tensor} lacks the term D = rowsum(dO * O)", _take(without_d, evidence)
    if d_k < right.out.shape[-1]:
        part = torch.cat([right.out[..., :d_k], torch.zeros_like(right.out[..., d_k:])], -1)
        of_part = replace(right, out=part).backward(evidence.do)
        yield f"D = rowsum(dO * O) of {evidence.tensor} sums the first d_k columns only", _take(of_part, evidence)


@hypothesis()
def mask_left_out(evidence: Evidence) -> Iterator[Prediction]:
    """P is made again from unmasked scores, with the maximum and the sum of the masked ones."""
    x, right = evidence.x, evidence.truth.right
    if evidence.tensor == "out" or not (x.is_causal or x.attn_mask is not None):
        return
    unmasked = replace(right, operands=replace(x, attn_mask=None, is_causal=False))
    yield "the backward pass ignores the mask", _take(unmasked.backward(evidence.do), evidence)


@hypothesis(everywhere=True)
def scale_left_out(evidence: Evidence) -> Iterator[Prediction]:
    """P is made again under the default scale, with the maximum and the sum of the scores under the one given."""
    x, right = evidence.x, evidence.truth.right
    if evidence.tensor == "out" or x.scale is None:
        return
    rescaled = replace(right, operands=replace(x, scale=None))
    yield "the backward pass uses the default scale, not the one given", _take(rescaled.backward(evidence.do), evidence)


@hypothesis(everywhere=True)
def wrong_gradient_of_out(evidence: Evidence) -> Iterator[Prediction]:
    """do itself is read wrongly."""
    if evidence.tensor == "out":
        return
    right, do = evidence.truth.right, evidence.do
    others = {
        "the gradient of the output is taken for ones": torch.ones_like(do, memory_format=torch.contiguous_format)
    }
    if not do.is_contiguous() and 0 not in do.stride():
        others["the strides of the gradient of the output are ignored"] = do.transpose(1, 2).contiguous().view(do.shape)
    for sentence, other in others.items():
        yield sentence, _take(right.backward(other), evidence)


@hypothesis()
def wrong_operands(evidence: Evidence) -> Iterator[Prediction]:
    """Gradients swapped, or of one query head in a group only."""
    tensor, x = evidence.tensor, evidence.x
    others = [name for name in ("dq", "dk", "dv") if name != tensor]
    if tensor == "out":
        return
    for other in others:
        if evidence.truth.values[other].shape == evidence.right.shape:
            yield f"{tensor} holds {other}", evidence.truth.values[other]
    if x.enable_gqa and tensor in ("dk", "dv"):
        group = x.q.shape[1] // x.k.shape[1]
        yield f"{tensor} is the mean over the query heads of a group, not the sum", evidence.right / group
        for place, head in (("first", 0), ("last", group - 1)):
            one = torch.zeros_like(evidence.do)
            one[:, head::group] = evidence.do[:, head::group]
            yield (
                f"{tensor} comes from the {place} query head of each group only",
                _take(evidence.truth.right.backward(one), evidence),
            )


def _take(gradients: Gradients, evidence: Evidence) -> Tensor:
    found = getattr(gradients, evidence.tensor)
    assert isinstance(found, Tensor)
    return found

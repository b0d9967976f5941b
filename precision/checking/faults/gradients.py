"""Faults of the backward pass alone: a missing scale, a missing term, heads that are not added up."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from precision.checking.faults.fault import Evidence, Prediction, hypothesis
from precision.numerics.gradients import Gradients


@hypothesis
def gradient_scale(evidence: Evidence) -> Iterator[Prediction]:
    """dq or dk without the scale, or with it twice; dv with it."""
    scale, tensor, right = evidence.x.scale_value, evidence.tensor, evidence.right
    if tensor in ("dq", "dk"):
        yield f"{tensor} lacks the scale", right / scale
        yield f"{tensor} has the scale twice", right * scale
    if tensor == "dv":
        yield "dv is multiplied by the scale", right * scale
    if tensor != "out":
        yield f"{tensor} is half of what it should be", right / 2
        yield f"{tensor} is twice what it should be", right * 2


@hypothesis
def missing_term(evidence: Evidence) -> Iterator[Prediction]:
    """dS = P dP without - D: the softmax taken for a plain product."""
    if evidence.tensor not in ("dq", "dk"):
        return
    right = evidence.truth.right
    without_d = replace(right, out=torch.zeros_like(right.out)).backward(evidence.do)
    yield f"{evidence.tensor} lacks the term D = rowsum(dO * O)", _take(without_d, evidence)


@hypothesis
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


@hypothesis
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
        first = torch.zeros_like(evidence.do)
        first[:, ::group] = evidence.do[:, ::group]
        yield (
            f"{tensor} comes from the first query head of each group only",
            _take(evidence.truth.right.backward(first), evidence),
        )


def _take(gradients: Gradients, evidence: Evidence) -> Tensor:
    found = getattr(gradients, evidence.tensor)
    assert isinstance(found, Tensor)
    return found

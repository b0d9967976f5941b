"""The gradient of a float mask: the formula against autograd in fp64, and what a check says of kernels without it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from precision.checking.mask_gradient import NO_GRADIENT, judge_mask_gradient
from precision.checking.problems import find_problem
from precision.checking.truth import Truth
from precision.kernel import Kernel
from precision.numerics.bounds import Matrices

CPU = torch.device("cpu")
NAMES = ("additive-full", "additive-heads", "same-additive-2d", "same-additive-keys")


@pytest.mark.parametrize("name", NAMES)
def test_it_is_what_autograd_gives_in_fp64(name: str) -> None:
    truth = Truth(find_problem(name), "fp64", 0, CPU)
    x, do = truth.call.x, truth.call.do
    assert x.attn_mask is not None
    mask = x.attn_mask.clone().requires_grad_()
    scores = x.q @ x.k.mT * x.scale_value + mask
    (by_autograd,) = torch.autograd.grad(scores.softmax(-1) @ x.v, mask, do)
    right = Matrices(truth.right, do).ds.sum_to_size(mask.shape)
    torch.testing.assert_close(right, by_autograd, rtol=1e-12, atol=1e-12)


def _detached(q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor, **call: Any) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, attn_mask.detach(), **call)


def _refused(q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor, **call: Any) -> Tensor:
    if attn_mask.requires_grad:
        raise NotImplementedError("a mask that is trained")
    return F.scaled_dot_product_attention(q, k, v, attn_mask, **call)


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize(
    ("kernel", "said"),
    [
        (F.scaled_dot_product_attention, []),
        (_detached, [NO_GRADIENT]),
        (_refused, [f"{NO_GRADIENT}: a mask that is trained"]),
    ],
    ids=["right", "detached", "refused"],
)
def test_none_is_a_limit_and_a_right_one_is_right(kernel: Callable[..., Tensor], said: list[str], dtype: str) -> None:
    for name in NAMES:
        assert list(judge_mask_gradient(Kernel.of(kernel), Truth(find_problem(name), dtype, 0, CPU))) == said


def test_a_sum_over_the_last_sequence_alone_is_wrong() -> None:
    class LastSequence(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, mask: Tensor, batch: int) -> Tensor:
            return mask.expand(batch, -1, -1, -1).clone()

        @staticmethod
        def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor, None]:
            return outer[0][-1:], None

    def kernel(q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor, **call: Any) -> Tensor:
        mask = LastSequence.apply(attn_mask, q.shape[0]) if attn_mask.shape[0] == 1 else attn_mask
        return F.scaled_dot_product_attention(q, k, v, mask, **call)

    said = list(judge_mask_gradient(Kernel.of(kernel), Truth(find_problem("same-additive-heads"), "fp32", 0, CPU)))
    assert [sentence.partition(" is off by")[0] for sentence in said] == ["the gradient of the mask"]

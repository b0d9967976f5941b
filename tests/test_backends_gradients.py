"""The gradients of every backend: those of the function, under the backend's own switches, or refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from backend_calls import FP32_INSIDE, PROBLEMS, SOFTMAX, TRACED, normal, operands
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from precision.backends.backend import Absent, Attention, Refused, backends
from precision.backends.gradient import prepare_gradients
from precision.numerics.reference import attend
from precision.operands import Operands


@pytest.mark.parametrize(
    "problem", ["plain", "grouped heads", "causal wide", "causal tall", "boolean mask", "strided views"]
)
@pytest.mark.parametrize("method", SOFTMAX)
def test_gradients_are_those_of_the_function(method: str, problem: str) -> None:
    x = PROBLEMS[problem](torch.float64)
    do = normal(*x.q.shape[:3], x.v.shape[-1], seed=9, dtype=torch.float64)
    try:
        with prepare_gradients(backends.build(method), x, do) as differentiate:
            first, found = differentiate(), differentiate()
    except (Absent, Refused) as error:
        pytest.skip(str(error))
    right = attend(x).backward(do)
    for name in ("dq", "dk", "dv"):
        gradient, wanted = getattr(found, name), getattr(right, name)
        assert torch.equal(getattr(first, name), gradient)
        # A softmax in fp32: the weights, of size 1, err by (n + 2 + 2R) u, and the sums of 30 terms grow that.
        allowed = 1e-4 if method in FP32_INSIDE else 1e-12
        torch.testing.assert_close(gradient, wanted, rtol=0, atol=allowed)


class Recorder:
    """MATH alone is allowed; what is allowed during the backward pass is written down."""

    max_subtraction = True

    def __init__(self) -> None:
        self.flash_allowed: list[bool] = []

    @contextmanager
    def prepare(self, x: Operands) -> Iterator[Attention]:
        def record(gradient: Tensor) -> None:
            self.flash_allowed.append(torch.backends.cuda.flash_sdp_enabled())

        def call() -> Tensor:
            out = torch.nn.functional.scaled_dot_product_attention(x.q, x.k, x.v)
            out.register_hook(record)
            return out

        with sdpa_kernel(SDPBackend.MATH):
            yield call


def test_the_backends_switches_hold_during_the_backward_pass() -> None:
    x, recorder = operands(torch.float64), Recorder()
    with torch.no_grad(), prepare_gradients(recorder, x, torch.ones_like(x.q)) as differentiate:
        found = differentiate()
    assert recorder.flash_allowed == [False]
    torch.testing.assert_close(found.dq, attend(x).backward(torch.ones_like(x.q)).dq, rtol=0, atol=1e-14)


class NoGradient:
    """A kernel of another framework, which autograd cannot see into."""

    max_subtraction = True

    @contextmanager
    def prepare(self, x: Operands) -> Iterator[Attention]:
        yield lambda: x.q.detach().clone()


def test_without_a_backward_pass_gradients_are_refused() -> None:
    x = operands(torch.float32)
    with prepare_gradients(NoGradient(), x, x.q) as differentiate, pytest.raises(Refused, match="no backward pass"):
        differentiate()


@pytest.mark.parametrize("method", ["flex", TRACED])
def test_flex_refuses_gradients_on_a_cpu_in_its_own_words(method: str) -> None:
    x = operands(torch.float32)
    context = prepare_gradients(backends.build(method), x, x.q)
    with pytest.raises(Refused, match="does not support backward on CPU"), context:
        pass

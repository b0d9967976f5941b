"""Second derivatives and forward mode: there, or refused in the library's words; the output is that of the backend."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from precision.backends.backend import Attention, Refused, backends
from precision.backends.derivatives import DERIVATIVES, prepare_asked
from precision.operands import Operands

ASKS = pytest.mark.parametrize("asks", DERIVATIVES)


def operands() -> Operands:
    stream = torch.Generator().manual_seed(0)
    return Operands(*(torch.randn(1, 2, 4, 8, generator=stream) for _ in range(3)))


class Plain:
    """One function of q, k and v as a backend."""

    max_subtraction = True

    def __init__(self, function: Callable[[Tensor, Tensor, Tensor], Tensor]) -> None:
        self._function = function

    @contextmanager
    def prepare(self, x: Operands) -> Iterator[Attention]:
        yield lambda: self._function(x.q, x.k, x.v)


def refusal(method: str, asks: str) -> str:
    with pytest.raises(Refused) as refused, prepare_asked(backends.build(method), operands(), asks) as call:
        call()
    return str(refused.value)


@ASKS
@pytest.mark.parametrize("method", ["eager", "sdpa-math", "weighting/softmax"])
def test_plain_operations_have_them(method: str, asks: str) -> None:
    x, backend = operands(), backends.build(method)
    with prepare_asked(backend, x, asks) as call, backend.prepare(x) as plain:
        out = call()
        torch.testing.assert_close(out, plain())
    assert not out.requires_grad and not x.q.requires_grad


def test_flash_refuses_both_in_torchs_words() -> None:
    assert "flash_attention_for_cpu_backward is not implemented" in refusal("sdpa-flash", "gradgrad")
    assert "forward AD" in refusal("sdpa-flash", "jvp")


def test_what_carries_no_derivative_is_refused() -> None:
    constant = Plain(lambda q, k, v: torch.ones_like(q))
    for asks, reason in (("gradgrad", "no backward pass"), ("jvp", "no forward-mode derivative")):
        with pytest.raises(Refused, match=reason), prepare_asked(constant, operands(), asks) as call:
            call()


def test_a_linear_function_has_no_second_derivative() -> None:
    with (
        pytest.raises(Refused, match="no second backward pass"),
        prepare_asked(Plain(lambda q, k, v: q + k + v), operands(), "gradgrad") as call,
    ):
        call()


@ASKS
def test_any_other_error_is_no_refusal(asks: str) -> None:
    def fail(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"), prepare_asked(Plain(fail), operands(), asks) as call:
        call()


def test_nothing_asked_is_the_backend_itself() -> None:
    x = replace(operands(), scale=0.5)
    with prepare_asked(backends.build("eager"), x, "") as call, backends.build("eager").prepare(x) as plain:
        assert torch.equal(call(), plain())

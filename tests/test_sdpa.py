"""SDPA backends: right in fp64, what was asked for is what ran, and torch's own reason when it cannot."""

import warnings
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import assume, given
from plain import DTYPES, any_operands, plain_attention
from torch import Tensor
from torch.nn.attention import SDPBackend
from torch.utils._python_dispatch import TorchDispatchMode

from precision.backends.backend import Refused
from precision.backends.sdpa import SdpaFlash, SdpaMath
from precision.operands import Operands

Method = SdpaMath | SdpaFlash
BOTH = pytest.mark.parametrize("method", [SdpaMath(), SdpaFlash()], ids=["math", "flash"])


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def operands(q_len: int = 5, kv_len: int = 5, **switches: Any) -> Operands:
    return replace(
        Operands(normal(2, 4, q_len, 8), normal(2, 4, kv_len, 8, seed=1), normal(2, 4, kv_len, 8, seed=2)), **switches
    )


class Watched(TorchDispatchMode):
    """Names of the operations that really ran."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(func._schema.name)
        return func(*args, **(kwargs or {}))


def run(method: Method, x: Operands) -> tuple[Tensor, list[str]]:
    with method.prepare(x) as call, Watched() as watched:
        return call(), watched.names


def refusal(method: Method, x: Operands) -> str:
    with pytest.raises(Refused) as refused, method.prepare(x):
        pytest.fail("it agreed to compute")
    return str(refused.value)


@BOTH
@given(x=any_operands(dtypes=("fp64",)))
def test_fp64_is_right_or_refused(method: Method, x: Operands) -> None:
    # FLASH on a CPU writes -inf for the future before it scales, and -inf times a scale that is not positive is wrong.
    assume(not (isinstance(method, SdpaFlash) and x.is_causal and x.scale_value <= 0))
    try:
        out, _ = run(method, x)
    except Refused:
        assert isinstance(method, SdpaFlash)  # MATH does every call
        return
    torch.testing.assert_close(out, plain_attention(x).out, rtol=0, atol=1e-12)


@BOTH
@given(x=any_operands())
def test_what_was_asked_for_is_what_ran(method: Method, x: Operands) -> None:
    try:
        _, names = run(method, x)
    except Refused:
        return
    fused = "aten::_scaled_dot_product_flash_attention_for_cpu" in names
    assert fused == isinstance(method, SdpaFlash)
    assert ("aten::_safe_softmax" in names) == isinstance(method, SdpaMath)


@BOTH
@pytest.mark.parametrize("name", DTYPES)
def test_runs_in_every_dtype(method: Method, name: str) -> None:
    x = operands()
    x = replace(x, q=x.q.to(DTYPES[name]), k=x.k.to(DTYPES[name]), v=x.v.to(DTYPES[name]))
    assert run(method, x)[0].dtype == DTYPES[name]


@BOTH
@pytest.mark.parametrize(("q_len", "kv_len"), [(5, 8), (8, 5), (1, 8)])
def test_causal_is_aligned_top_left(method: Method, q_len: int, kv_len: int) -> None:
    """Row i equals a call of that row on the keys 0..i alone."""
    x = operands(q_len, kv_len, is_causal=True)
    out, _ = run(method, x)
    for i in range(q_len):
        row = Operands(x.q[:, :, i : i + 1], x.k[:, :, : i + 1], x.v[:, :, : i + 1])
        torch.testing.assert_close(out[:, :, i : i + 1].double(), plain_attention(row).out, rtol=0, atol=1e-6)


@BOTH
def test_grouped_heads(method: Method) -> None:
    x = operands(k=normal(2, 2, 5, 8, seed=1), v=normal(2, 2, 5, 8, seed=2))
    torch.testing.assert_close(run(method, x)[0].double(), plain_attention(x).out, rtol=0, atol=1e-6)


def test_an_empty_batch_is_an_empty_output() -> None:
    x = Operands(normal(0, 4, 5, 8), normal(0, 4, 5, 8), normal(0, 4, 5, 8))
    assert run(SdpaMath(), x)[0].shape == (0, 4, 5, 8)


@BOTH
def test_another_choice_of_torch_is_refused(method: Method, monkeypatch: pytest.MonkeyPatch) -> None:
    other = SDPBackend.EFFICIENT_ATTENTION
    monkeypatch.setattr(torch, "_fused_sdp_choice", lambda *tensors, **switches: other.value)
    assert refusal(method, operands()) == "torch would run EFFICIENT_ATTENTION instead"


# What flash cannot do, in torch's words


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"v": normal(2, 4, 5, 6)}, "same last dimension"),
        ({"attn_mask": torch.zeros(5, 5, requires_grad=True)}, "No available kernel"),
        ({"attn_mask": torch.ones(4, 5, 5, dtype=torch.bool)}, "attn mask shapes"),
        ({"attn_mask": torch.ones(5, dtype=torch.bool)}, "Dimension out of range"),
        ({"q": normal(2, 4, 8, 5).mT}, "last dimension of the input to have stride 1"),
        ({"q": normal(2, 4, 0, 8)}, "zero seq_len"),
        ({"k": normal(2, 4, 0, 8), "v": normal(2, 4, 0, 8)}, "zero seq_len"),
        ({"k": normal(2, 3, 5, 8), "v": normal(2, 3, 5, 8)}, "must divide"),
    ],
)
def test_flash_refuses_what_math_would_get(change: dict[str, Any], reason: str) -> None:
    said = refusal(SdpaFlash(), operands(**change))
    assert reason in said
    assert "Triggered internally" not in said and "\n" not in said


def test_math_does_what_flash_refuses() -> None:
    for change in ({"v": normal(2, 4, 5, 6)}, {"q": normal(2, 4, 8, 5).mT}, {"q": normal(2, 4, 0, 8)}):
        assert "aten::_scaled_dot_product_flash_attention_for_cpu" not in run(SdpaMath(), operands(**change))[1]


@BOTH
@pytest.mark.parametrize(
    ("dtype", "mask"), [(torch.bfloat16, torch.float16), (torch.float32, torch.float64), (torch.float32, torch.int32)]
)
def test_mask_of_another_dtype_is_refused(method: Method, dtype: torch.dtype, mask: torch.dtype) -> None:
    x = operands(attn_mask=torch.ones(5, 5, dtype=mask))
    x = replace(x, q=x.q.to(dtype), k=x.k.to(dtype), v=x.v.to(dtype))
    assert "Expected attn_mask dtype" in refusal(method, x)


@BOTH
def test_inputs_of_unlike_dtypes_are_refused(method: Method) -> None:
    assert "same dtype" in refusal(method, operands(q=normal(2, 4, 5, 8).double()))


@BOTH
def test_leaves_the_users_switches_as_they_were(method: Method) -> None:
    before = torch.backends.cuda.flash_sdp_enabled(), torch.backends.cuda.math_sdp_enabled()
    run(method, operands())
    refusal(method, operands(attn_mask=torch.ones(5, 5, dtype=torch.int32)))
    assert (torch.backends.cuda.flash_sdp_enabled(), torch.backends.cuda.math_sdp_enabled()) == before


def test_reasons_are_told_and_not_warned() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        refusal(SdpaFlash(), operands(v=normal(2, 4, 5, 6)))


@BOTH
def test_subtracts_the_maximum(method: Method) -> None:
    """Logits of 1000, whose exponential overflows in every dtype."""
    q = torch.full((1, 1, 1, 8), 10.0, dtype=torch.float64)
    k, v = torch.full((1, 1, 2, 8), 12.5, dtype=torch.float64), normal(1, 1, 2, 8).double()
    out, _ = run(method, Operands(q, k, v, scale=1.0))
    assert method.max_subtraction
    torch.testing.assert_close(out, v.mean(2, keepdim=True), rtol=0, atol=1e-15)

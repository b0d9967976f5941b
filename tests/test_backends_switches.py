"""torch's choice between its kernels: what it chose is seen, what it refuses is said, the user's switches stay."""

from __future__ import annotations

import pytest
import torch
from backend_calls import CPU, PROBLEMS, operands, with_

from precision.backends.backend import Absent, Refused, backends
from precision.sweep.memory import profile_call


def test_the_default_is_seen_to_choose() -> None:
    found = {}
    for problem in ("plain", "narrow values"):
        with backends.build("sdpa").prepare(PROBLEMS[problem](torch.float32)) as call:
            found[problem] = profile_call(call, CPU).operators
    assert found["plain"] == ("_scaled_dot_product_flash_attention_for_cpu",)
    assert found["narrow values"] == ("_scaled_dot_product_attention_math",)


@pytest.mark.parametrize("method", ["sdpa-efficient", "sdpa-cudnn"])
def test_a_kernel_that_is_not_on_this_machine_is_absent_in_torchs_words(method: str) -> None:
    with pytest.raises(Absent, match="No viable backend"), backends.build(method).prepare(operands(torch.float16)):
        pass


@pytest.mark.parametrize("allowed", [True, False])
def test_the_flag_of_a_kernel_is_the_users_switch(allowed: bool) -> None:
    cuda = torch.backends.cuda
    users = cuda.mem_efficient_sdp_enabled()
    try:
        cuda.enable_mem_efficient_sdp(allowed)
        with (
            pytest.raises(Absent, match=f"mem_efficient_sdp_enabled\\(\\) says {allowed}"),
            backends.build("sdpa-efficient").prepare(operands(torch.float16)),
        ):
            pass
    finally:
        cuda.enable_mem_efficient_sdp(users)


def test_the_default_refuses_what_torch_does() -> None:
    x = with_(operands(torch.bfloat16), attn_mask=torch.zeros(5, 7, dtype=torch.float16))
    with pytest.raises(Refused, match="Expected attn_mask dtype"), backends.build("sdpa").prepare(x):
        pass


@pytest.mark.parametrize("before", [True, False])
def test_the_reduced_precision_flag_is_on_inside_and_restored(before: bool) -> None:
    cuda = torch.backends.cuda
    users = cuda.fp16_bf16_reduction_math_sdp_allowed()
    x = with_(operands(torch.float16), q=1000 * operands(torch.float16).q, k=1000 * operands(torch.float16).k)
    try:
        cuda.allow_fp16_bf16_reduction_math_sdp(before)
        with backends.build("sdpa-math-reduced").prepare(x) as call:
            assert cuda.fp16_bf16_reduction_math_sdp_allowed()
            assert call().isnan().any()  # scores of a million do not fit into fp16; MATH in fp32 gives no NaN
        assert cuda.fp16_bf16_reduction_math_sdp_allowed() == before
        with backends.build("sdpa-math").prepare(x) as call:
            assert call().isnan().any() == before
    finally:
        cuda.allow_fp16_bf16_reduction_math_sdp(users)

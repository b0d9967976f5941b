"""Compiled backends: as right as others, seen to be compiled, and never run eagerly instead."""

from __future__ import annotations

import pytest
import torch
from backend_calls import CPU, PROBLEMS, ROUNDOFF, assert_right, bound, operands

from precision.backends.backend import Absent, backends
from precision.backends.compiling import compiling
from precision.sweep.memory import profile_call


@pytest.mark.parametrize(
    ("method", "problem"),
    [("compiled", "plain"), ("compiled", "mask of a head"), ("compiled", "causal wide"), ("flex", "mask of a head")],
)
def test_compiled_code_errs_within_its_bound(method: str, problem: str) -> None:
    x = PROBLEMS[problem](torch.float32)
    assert_right(method, x, bound(x, ROUNDOFF[torch.float32]))


def test_inductor_is_seen_to_rewrite_plain_attention() -> None:
    with backends.build("compiled").prepare(operands(torch.float32)) as call:
        call()
        assert profile_call(call, CPU).operators == ("_scaled_dot_product_flash_attention_for_cpu",)
    with backends.build("eager").prepare(operands(torch.float32)) as call:
        assert profile_call(call, CPU).operators == ()


def test_compiled_code_never_runs_eagerly_instead() -> None:
    from torch._dynamo import config
    from torch._dynamo.exc import FailOnRecompileLimitHit

    with compiling(torch.neg, torch.device("cpu")) as negate, config.patch(recompile_limit=1):
        assert negate(torch.ones(2))[0] == -1
        with pytest.raises(FailOnRecompileLimitHit):
            negate(torch.ones(3, 3))
    with compiling(torch.neg, torch.device("cpu")) as negate, config.patch(recompile_limit=1):
        assert negate(torch.ones(4))[0] == -1  # the problems before are forgotten


def test_no_compiler_and_no_compilation_are_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    with compiling(torch.neg, torch.device("cpu")):
        pass
    from torch._dynamo import config
    from torch._inductor import cpp_builder
    from torch._inductor.exc import InvalidCxxCompiler

    def nowhere() -> str:
        raise InvalidCxxCompiler("nowhere/g++")

    with (
        pytest.raises(Absent, match="switched off"),
        config.patch(disable=True),
        compiling(torch.neg, torch.device("cpu")),
    ):
        pass
    monkeypatch.setattr(cpp_builder, "get_cpp_compiler", nowhere)
    with pytest.raises(Absent, match=r"C\+\+ compiler"), compiling(torch.neg, torch.device("cpu")):
        pass

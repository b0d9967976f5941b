"""Every registered backend computes the same function, or says why not; a new one is tested by being there."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from precision.backends.backend import Absent, Attention, Refused, backends
from precision.backends.compiling import compiling
from precision.backends.gradient import prepare_gradients
from precision.numerics.reference import attend
from precision.operands import Operands
from precision.scores.weighting import weightings
from precision.sweep.memory import profile_call

CPU = torch.device("cpu")
COMPILED = ["compiled", "flex"]  # each problem costs a C++ compiler's seconds, so they get few
TRACED = "flex[compiled=false]"  # each problem costs half a second
VARIANTS = ["eager[scale=before]", "eager[max_subtraction=false]", "triton[max_subtraction=false]"]


def is_here(method: str) -> bool:
    plain = torch.zeros(1, 1, 2, 8, dtype=torch.float16)
    try:
        with backends.build(method).prepare(Operands(plain, plain, plain)):
            return True
    except Absent:
        return False
    except Refused:
        return True


HERE = [name for name in sorted([*backends.names(), *VARIANTS]) if name not in COMPILED and is_here(name)]
SOFTMAX = [name for name in HERE if getattr(backends.build(name), "is_softmax", True)]
OTHER_FUNCTIONS = [name for name in HERE if name not in SOFTMAX]
# These keep the scores or the scale in fp32 whatever the dtype; their fp64 is held to the fp32 bound.
FP32_INSIDE = ["jax", "onnxruntime"]
ROUNDOFF = {torch.float64: 2.0**-53, torch.float32: 2.0**-24, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}


def normal(*size: int, seed: int, dtype: torch.dtype) -> Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def operands(
    dtype: torch.dtype,
    heads: tuple[int, int] = (2, 2),
    lengths: tuple[int, int] = (5, 7),
    widths: tuple[int, int] = (8, 8),
) -> Operands:
    q = normal(2, heads[0], lengths[0], widths[0], seed=1, dtype=dtype)
    k = normal(2, heads[1], lengths[1], widths[0], seed=2, dtype=dtype)
    return Operands(q, k, normal(2, heads[1], lengths[1], widths[1], seed=3, dtype=dtype))


def with_(x: Operands, **changes: object) -> Operands:
    return Operands(**{**x.__dict__, **changes})  # type: ignore[arg-type]


def kept(*size: int) -> Tensor:
    """Seven keys in ten; the first always, so that no row is without one."""
    keep = torch.rand(size, generator=torch.Generator().manual_seed(4)) < 0.7
    keep[..., 0] = True
    return keep


def strided(dtype: torch.dtype) -> Operands:
    """Lengths before heads, a view with gaps that starts elsewhere, and a key head that all batches share."""
    x = operands(dtype)
    wide = torch.cat([x.k, x.k], -1)
    return with_(x, q=x.q.transpose(1, 2).contiguous().transpose(1, 2), k=wide[..., 8:], v=x.v[:1].expand_as(x.v))


PROBLEMS: dict[str, Callable[[torch.dtype], Operands]] = {
    "plain": operands,
    "one key": lambda dtype: operands(dtype, lengths=(5, 1)),
    "several tiles": lambda dtype: operands(dtype, lengths=(70, 300)),
    "grouped heads": lambda dtype: operands(dtype, heads=(6, 2)),
    "narrow values": lambda dtype: operands(dtype, widths=(8, 3)),
    "causal square": lambda dtype: with_(operands(dtype, lengths=(7, 7)), is_causal=True),
    "causal wide": lambda dtype: with_(operands(dtype, lengths=(5, 8)), is_causal=True),
    "causal tall": lambda dtype: with_(operands(dtype, lengths=(8, 5)), is_causal=True),
    "causal tiles": lambda dtype: with_(operands(dtype, lengths=(130, 70)), is_causal=True),
    "boolean mask": lambda dtype: with_(operands(dtype), attn_mask=kept(2, 1, 5, 7)),
    "mask of a head": lambda dtype: with_(operands(dtype, heads=(4, 2)), attn_mask=kept(1, 4, 5, 7)),
    "mask of two dimensions": lambda dtype: with_(operands(dtype), attn_mask=kept(5, 7)),
    "additive mask": lambda dtype: with_(operands(dtype), attn_mask=normal(1, 2, 5, 7, seed=5, dtype=dtype)),
    "additive mask with -inf": lambda dtype: with_(
        operands(dtype), attn_mask=normal(2, 1, 5, 7, seed=5, dtype=dtype).masked_fill(~kept(2, 1, 5, 7), -torch.inf)
    ),
    "scale 0.3": lambda dtype: with_(operands(dtype), scale=0.3),
    "scale 1": lambda dtype: with_(operands(dtype), scale=1.0),
    "scale 0": lambda dtype: with_(operands(dtype), scale=0.0),
    "scale -0.5": lambda dtype: with_(operands(dtype), scale=-0.5),
    "strided views": strided,
}


@contextmanager
def prepared(method: str, x: Operands) -> Iterator[Attention]:
    """The method's call, or a skipped test with the reason why there is none."""
    with ExitStack() as stack:
        try:
            call = stack.enter_context(backends.build(method).prepare(x))
        except (Absent, Refused) as error:
            pytest.skip(str(error))
        yield call


def bound(x: Operands, unit: float) -> Tensor:
    """(B, Hq, L, 1): what attention with every operation rounded to a unit roundoff may err, to first order.

    Scores: gamma_(d+2) |q|.|k| |scale| + u |logit| (Higham 2002, 3.1, and one rounding each for scale and mask).
    Softmax: (n + 2 + 2R) u (Blanchard, Higham & Higham 2021, theorem 4.3), and twice the error of the scores.
    P V: gamma_n, the weights and the output rounded once each, over the largest |v|; eta is fp16's underflow.
    """
    group = x.q.shape[1] // x.k.shape[1]
    q, k = x.q.double(), x.k.double().repeat_interleave(group, 1)
    logits = q @ k.mT * x.scale_value
    if x.attn_mask is not None and x.attn_mask.dtype != torch.bool:
        logits = logits + x.attn_mask.double()
    n, finite = x.k.shape[2], logits.nan_to_num(0.0, 0.0, 0.0)
    sizes = (q.abs() @ k.abs().mT * abs(x.scale_value)).amax(-1, keepdim=True)
    score = (x.q.shape[-1] + 2) * unit * sizes + unit * finite.abs().amax(-1, keepdim=True)
    spread = finite.amax(-1, keepdim=True) - finite.amin(-1, keepdim=True)
    eta = 2.0**-25 if unit == ROUNDOFF[torch.float16] else 0.0
    largest = float(x.v.double().abs().max())
    return ((n + 2 + 2 * spread) * unit + 2 * score + (n + 2) * unit + n * eta) * largest


def assert_right(method: str, x: Operands, allowed: Tensor | float) -> None:
    with prepared(method, x) as call:
        out = call()
    right = attend(x).out
    assert out.dtype == x.q.dtype and out.shape == right.shape
    assert bool(((out.double() - right).abs() <= allowed).all())


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("method", [*SOFTMAX, TRACED])
def test_fp64_shows_the_right_function(method: str, problem: str) -> None:
    x = PROBLEMS[problem](torch.float64)
    if method == "onnxruntime" and x.scale_value < 0:
        pytest.skip("it takes the square root of the scale")
    inside = torch.float32 if method in FP32_INSIDE else torch.float64
    assert_right(method, x, bound(x, ROUNDOFF[inside]) if inside == torch.float32 else 1e-12)


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("method", SOFTMAX)
def test_fp32_errs_within_its_bound(method: str, problem: str) -> None:
    x = PROBLEMS[problem](torch.float32)
    assert_right(method, x, bound(x, ROUNDOFF[torch.float32]))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("problem", ["plain", "grouped heads", "causal wide", "additive mask"])
@pytest.mark.parametrize("method", SOFTMAX)
def test_narrow_formats_err_within_their_bound(method: str, problem: str, dtype: torch.dtype) -> None:
    x = PROBLEMS[problem](dtype)
    assert_right(method, x, bound(x, ROUNDOFF[dtype]))


@pytest.mark.parametrize(
    ("method", "problem"),
    [("compiled", "plain"), ("compiled", "mask of a head"), ("compiled", "causal wide"), ("flex", "mask of a head")],
)
def test_compiled_code_errs_within_its_bound(method: str, problem: str) -> None:
    x = PROBLEMS[problem](torch.float32)
    assert_right(method, x, bound(x, ROUNDOFF[torch.float32]))


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


@pytest.mark.parametrize("method", HERE)
def test_each_call_computes_into_memory_of_its_own(method: str) -> None:
    x = operands(torch.float32)
    with prepared(method, x) as call:
        first = call()
        copy = first.clone()
        second = call()
    assert torch.equal(first, copy) and torch.equal(first, second)
    assert first.data_ptr() != second.data_ptr()


@pytest.mark.parametrize("method", HERE)
def test_the_operands_stay_as_they_are(method: str) -> None:
    x = PROBLEMS["additive mask"](torch.float32)
    before = [tensor.clone() for tensor in (x.q, x.k, x.v, x.attn_mask)]
    with prepared(method, x) as call:
        call()
    assert all(torch.equal(a, b) for a, b in zip((x.q, x.k, x.v, x.attn_mask), before, strict=True))


@pytest.mark.parametrize("method", [name for name in HERE if "max_subtraction=false" in name])
def test_without_max_subtraction_a_large_logit_overflows(method: str) -> None:
    q = torch.full((1, 1, 1, 8), 10.0)
    x = Operands(q, torch.full((1, 1, 2, 8), 12.5), torch.ones(1, 1, 2, 8), scale=1.0)  # logits of 1000
    backend = backends.build(method)
    assert not backend.max_subtraction
    with prepared(method, x) as call:
        assert not call().isfinite().any()


@pytest.mark.parametrize("method", [name for name in backends.names() if name not in [*COMPILED, *HERE]])
def test_what_is_not_here_says_why(method: str) -> None:
    with pytest.raises(Absent, match=r"is not installed; pip install|cannot be imported|kernel here for|GPU|CUDA"):
        backends.build(method).prepare(operands(torch.float16)).__enter__()


def test_importing_every_backend_and_asking_torch_imports_no_framework() -> None:
    heavy = ["torch._dynamo", "torch._inductor", "jax", "onnx", "onnxruntime", "triton", "xformers", "flash_attn"]
    code = (
        "import sys, torch\nfrom precision.backends.backend import backends\nassert len(backends.names()) > 10\n"
        "from precision.operands import Operands\nx = torch.ones(1, 1, 2, 8)\n"
        "with backends.build('sdpa-flash').prepare(Operands(x, x, x)) as call:\n    assert call().shape == x.shape\n"
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_default_is_seen_to_choose() -> None:
    found = {}
    for problem in ("plain", "narrow values"):
        with backends.build("sdpa").prepare(PROBLEMS[problem](torch.float32)) as call:
            found[problem] = profile_call(call, CPU).operators
    assert found["plain"] == ("_scaled_dot_product_flash_attention_for_cpu",)
    assert found["narrow values"] == ("_scaled_dot_product_attention_math",)


def test_inductor_is_seen_to_rewrite_plain_attention() -> None:
    with backends.build("compiled").prepare(operands(torch.float32)) as call:
        call()
        assert profile_call(call, CPU).operators == ("_scaled_dot_product_flash_attention_for_cpu",)
    with backends.build("eager").prepare(operands(torch.float32)) as call:
        assert profile_call(call, CPU).operators == ()


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


@pytest.mark.parametrize("method", OTHER_FUNCTIONS)
@pytest.mark.parametrize("heads", [(2, 2), (6, 2)])
def test_a_weighting_averages_the_values_with_its_weights(method: str, heads: tuple[int, int]) -> None:
    """With v the identity the output is the weights; query heads share key heads in turn."""
    x = with_(operands(torch.float64, heads=heads), scale=0.3)
    x = with_(x, v=torch.eye(7, dtype=torch.float64).expand(2, heads[1], 7, 7))
    with prepared(method, x) as call:
        out = call()
    weighting = weightings.build(method.removeprefix("weighting/"))
    for head in range(heads[0]):
        key_head = head // (heads[0] // heads[1])
        for batch in range(2):
            alone = weighting.weights(x.q[batch, head], x.k[batch, key_head], 0.3)
            torch.testing.assert_close(out[batch, head], alone, rtol=0, atol=1e-12)


def test_the_weightings_that_are_no_softmax_are_far_from_it() -> None:
    """Else the property that excuses them from the tests above would hide a fault."""
    x = with_(operands(torch.float64), q=20 * operands(torch.float64).q)
    others = {name.removeprefix("weighting/") for name in OTHER_FUNCTIONS}
    assert others == {"bahdanau", "linear", "performer", "sink", "soft_cap"}
    for method in OTHER_FUNCTIONS:
        with prepared(method, x) as call:
            assert float((call() - attend(x).out).abs().max()) > (0 if method == "weighting/sink" else 1e-3), method


@pytest.mark.parametrize("problem", ["causal wide", "boolean mask", "additive mask"])
def test_a_weighting_refuses_a_mask(problem: str) -> None:
    for name in weightings.names():
        backend = backends.build(f"weighting/{name}")
        with pytest.raises(Refused, match="has a mask"), backend.prepare(PROBLEMS[problem](torch.float32)):
            pass


@pytest.mark.parametrize("method", [*HERE, TRACED, *COMPILED])
def test_no_key_at_all_gives_zeros_or_is_refused(method: str) -> None:
    with prepared(method, operands(torch.float32, lengths=(5, 0))) as call:
        assert not call().any()


@pytest.mark.parametrize("method", [*HERE, TRACED, "flex"])
def test_no_query_at_all_gives_nothing_or_is_refused(method: str) -> None:
    with prepared(method, operands(torch.float32, lengths=(0, 7))) as call:
        assert call().shape == (2, 2, 0, 8)


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


@pytest.mark.parametrize("method", ["triton", "sdpa", "sdpa-math", "sdpa-flash", TRACED])
def test_a_row_that_sees_no_key_is_zero(method: str) -> None:
    mask = torch.ones(5, 7, dtype=torch.bool)
    mask[2] = False
    with prepared(method, with_(operands(torch.float32), attn_mask=mask)) as call:
        out = call()
    assert not out[:, :, 2].any() and out[:, :, [0, 1, 3, 4]].all()


@pytest.mark.parametrize("method", ["triton", "jax", "onnxruntime", "sdpa-math", "eager"])
def test_a_nan_query_is_not_lost(method: str) -> None:
    x = operands(torch.float32)
    x.q[0, 0, 1, 0] = math.nan
    with prepared(method, x) as call:
        out = call()
    assert out[0, 0, 1].isnan().all() and int(out.isnan().any(-1).sum()) == 1

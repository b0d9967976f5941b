"""The thin backends of CUDA libraries, against stand-ins with the signatures and layouts that those document."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from precision.backends.backend import Absent, Refused, backends
from precision.backends.optional import Limits, import_optional, require_cuda
from precision.numerics.reference import attend
from precision.operands import Operands


def softmax_attention(q: Tensor, k: Tensor, v: Tensor, scale: float | None, bias: Tensor | None) -> Tensor:
    """(B, H, L, d), computed in fp64, rounded once."""
    k, v = (tensor.repeat_interleave(q.shape[1] // k.shape[1], 1) for tensor in (k, v))
    logits = q.double() @ k.double().mT * (q.shape[-1] ** -0.5 if scale is None else scale)
    logits = logits if bias is None else logits + bias.double()
    return (logits.softmax(-1) @ v.double()).to(q.dtype)


def bottom_right(q_len: int, kv_len: int) -> Tensor:
    seen = torch.ones(q_len, kv_len, dtype=torch.bool).tril(kv_len - q_len)
    return torch.zeros(q_len, kv_len).masked_fill(~seen, -torch.inf)


def flash_attn_func(
    q: Tensor, k: Tensor, v: Tensor, softmax_scale: float | None = None, causal: bool = False
) -> Tensor:
    """(B, L, H, d) in and out."""
    bias = bottom_right(q.shape[1], k.shape[1]) if causal else None
    return softmax_attention(*(tensor.transpose(1, 2) for tensor in (q, k, v)), softmax_scale, bias).transpose(1, 2)


def flash_attn_func_with_lse(*arguments: Any, **keywords: Any) -> tuple[Tensor, Tensor]:
    out = flash_attn_func(*arguments, **keywords)
    return out, torch.zeros(out.shape[0], out.shape[2], out.shape[1])


class LowerTriangularMask:
    """xFormers' mark for a causal mask that is aligned to the top left."""


def memory_efficient_attention(
    query: Tensor, key: Tensor, value: Tensor, attn_bias: Any = None, p: float = 0.0, *, scale: float | None = None
) -> Tensor:
    """(B, L, H, d) in and out, as many key heads as query heads; a bias in the dtype of q whose rows are aligned."""
    assert query.shape[2] == key.shape[2]
    if isinstance(attn_bias, LowerTriangularMask):
        seen = torch.ones(query.shape[1], key.shape[1], dtype=torch.bool).tril()
        attn_bias = torch.zeros(seen.shape).masked_fill(~seen, -torch.inf)
    elif attn_bias is not None:
        assert attn_bias.dtype == query.dtype and attn_bias.stride(-2) % 8 == 0
        assert attn_bias.shape == (query.shape[0], query.shape[2], query.shape[1], key.shape[1])
    return softmax_attention(*(t.transpose(1, 2) for t in (query, key, value)), scale, attn_bias).transpose(1, 2)


def sageattn(
    q: Tensor, k: Tensor, v: Tensor, tensor_layout: str = "HND", is_causal: bool = False, sm_scale: float | None = None
) -> Tensor:
    assert tensor_layout == "HND"
    return softmax_attention(q, k, v, sm_scale, bottom_right(q.shape[2], k.shape[2]) if is_causal else None)


class BatchPrefillWithRaggedKVCacheWrapper:
    """FlashInfer's: requests end to end, (sum of L, H, d), with the rows where each starts."""

    def __init__(self, float_workspace_buffer: Tensor, kv_layout: str = "NHD") -> None:
        assert kv_layout == "NHD" and float_workspace_buffer.dtype == torch.uint8

    def plan(
        self,
        qo_indptr: Tensor,
        kv_indptr: Tensor,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim_qk: int,
        head_dim_vo: int | None = None,
        custom_mask: Tensor | None = None,
        causal: bool = False,
        sm_scale: float | None = None,
        q_data_type: torch.dtype = torch.float16,
    ) -> None:
        assert qo_indptr.dtype == kv_indptr.dtype == torch.int32
        self.starts = qo_indptr.tolist(), kv_indptr.tolist()
        self.sizes = num_qo_heads, num_kv_heads, head_dim_qk, head_dim_vo, q_data_type
        self.custom_mask, self.causal, self.scale = custom_mask, causal, sm_scale

    def run(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        assert self.sizes == (q.shape[1], k.shape[1], q.shape[2], v.shape[2], q.dtype)
        outs, used = [], 0
        for request in range(len(self.starts[0]) - 1):
            rows, keys = (slice(starts[request], starts[request + 1]) for starts in self.starts)
            q_len, kv_len = rows.stop - rows.start, keys.stop - keys.start
            bias = bottom_right(q_len, kv_len) if self.causal else None
            if self.custom_mask is not None:
                seen = self.custom_mask[used : used + q_len * kv_len].view(q_len, kv_len)
                bias, used = torch.zeros(q_len, kv_len).masked_fill(~seen, -torch.inf), used + q_len * kv_len
            one = (tensor.transpose(0, 1)[None] for tensor in (q[rows], k[keys], v[keys]))
            outs.append(softmax_attention(*one, self.scale, bias)[0].transpose(0, 1))
        return torch.cat(outs)


STAND_INS = {
    "flash-attn-2": ("flash_attn", SimpleNamespace(flash_attn_func=flash_attn_func)),
    "flash-attn-3": ("flash_attn_interface", SimpleNamespace(flash_attn_func=flash_attn_func_with_lse)),
    "xformers": (
        "xformers.ops",
        SimpleNamespace(memory_efficient_attention=memory_efficient_attention, LowerTriangularMask=LowerTriangularMask),
    ),
    "sageattention": ("sageattention", SimpleNamespace(sageattn=sageattn)),
    "flashinfer": (
        "flashinfer",
        SimpleNamespace(BatchPrefillWithRaggedKVCacheWrapper=BatchPrefillWithRaggedKVCacheWrapper),
    ),
}
METHODS = list(STAND_INS)


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every library is there, and so is a device that they take."""
    for method, (module, library) in STAND_INS.items():
        monkeypatch.setitem(sys.modules, module, library)
        home = sys.modules[type(backends.build(method)).__module__]
        monkeypatch.setattr(home, "require_cuda", lambda x, kernel: None)


def operands(
    heads: tuple[int, int] = (2, 2), lengths: tuple[int, int] = (5, 7), dtype: torch.dtype = torch.float16, d_v: int = 8
) -> Operands:
    def normal(seed: int, *size: int) -> Tensor:
        return torch.randn(size, generator=torch.Generator().manual_seed(seed)).to(dtype)

    k = normal(2, 2, heads[1], lengths[1], 8)
    return Operands(normal(1, 2, heads[0], lengths[0], 8), k, normal(3, 2, heads[1], lengths[1], d_v))


def with_(x: Operands, **changes: object) -> Operands:
    return Operands(**{**x.__dict__, **changes})  # type: ignore[arg-type]


def refusal(method: str, x: Operands) -> str:
    with pytest.raises(Refused) as refused:
        backends.build(method).prepare(x).__enter__()
    return str(refused.value)


def assert_right(method: str, x: Operands) -> None:
    with backends.build(method).prepare(x) as call:
        out, again = call(), call()
    right = attend(x).out
    assert out.shape == right.shape and out.dtype == x.q.dtype and torch.equal(out, again)
    # One rounding to fp16: half an ulp, 2^-11 of the value, or half of the smallest subnormal, 2^-25.
    torch.testing.assert_close(out.double(), right, rtol=2.0**-11, atol=2.0**-25)


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "x",
    [
        operands(),
        operands(heads=(6, 2)),
        with_(operands(), scale=0.3),
        with_(operands(lengths=(7, 7)), is_causal=True),
        with_(operands(heads=(4, 2), lengths=(7, 7)), is_causal=True, scale=-0.5),
    ],
    ids=["plain", "grouped heads", "scale", "causal", "all of them"],
)
def test_the_problem_reaches_the_library_as_it_documents(method: str, x: Operands) -> None:
    assert_right(method, x)


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("lengths", [(5, 8), (8, 5)])
def test_a_causal_rectangle_is_top_left_aligned_or_refused(method: str, lengths: tuple[int, int]) -> None:
    x = with_(operands(lengths=lengths), is_causal=True)
    if method == "xformers":
        assert_right(method, x)
    else:
        assert "bottom right" in refusal(method, x)


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("method", METHODS)
def test_a_mask_is_applied_or_refused(method: str) -> None:
    keep = torch.rand(2, 1, 5, 7, generator=torch.Generator().manual_seed(4)) < 0.6
    keep[..., 0] = True
    x, bias = with_(operands(), attn_mask=keep), torch.linspace(-1, 1, 7, dtype=torch.float16).expand(1, 2, 5, 7)
    if method in ("xformers", "flashinfer"):
        assert_right(method, x)
    else:
        assert "boolean mask" in refusal(method, x)
    if method == "xformers":
        assert_right(method, with_(operands(), attn_mask=bias))
    else:
        assert "additive mask" in refusal(method, with_(operands(), attn_mask=bias))


@pytest.mark.usefixtures("installed")
def test_flashinfer_refuses_a_mask_of_each_head() -> None:
    mask = torch.ones(1, 2, 5, 7, dtype=torch.bool)
    assert "one mask for all heads" in refusal("flashinfer", with_(operands(), attn_mask=mask))


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("method", METHODS)
def test_what_the_library_does_not_take_is_refused(method: str) -> None:
    assert "not float64" in refusal(method, operands(dtype=torch.float64))
    if method in ("xformers", "flashinfer"):
        assert_right(method, operands(d_v=3))
    else:
        assert "d_v equal to d_k, not 3 and 8" in refusal(method, operands(d_v=3))


@pytest.mark.parametrize("method", METHODS)
def test_a_library_that_is_not_there_is_absent(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, STAND_INS[method][0], None)  # makes the import fail
    with pytest.raises(Absent, match="is not installed; pip install"):
        backends.build(method).prepare(operands()).__enter__()


@pytest.mark.parametrize("method", METHODS)
def test_on_a_cpu_they_are_absent(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, *STAND_INS[method])
    with pytest.raises(Absent, match="CUDA devices only, and the operands are on cpu"):
        backends.build(method).prepare(operands()).__enter__()


def test_a_broken_installation_says_so(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "half_there.py").write_text("import nowhere_at_all")
    (tmp_path / "other_cuda.py").write_text("raise ImportError('libcudart.so.11: cannot open shared object file')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(Absent, match="half_there cannot be imported: No module named 'nowhere_at_all'"):
        import_optional("half_there", "half-there")
    with pytest.raises(Absent, match="other_cuda cannot be imported: libcudart"):
        import_optional("other_cuda", "other-cuda")
    with pytest.raises(Absent, match="nowhere_at_all is not installed; pip install 'nowhere'"):
        import_optional("nowhere_at_all", "nowhere")


def test_limits_name_the_width_that_is_too_large() -> None:
    with pytest.raises(Refused, match="Some kernel takes head widths up to 4, not 8"):
        Limits("Some kernel", largest_width=4).require(operands())
    with pytest.raises(Absent, match="Some kernel runs on CUDA devices only"):
        require_cuda(operands(), "Some kernel")


COMPILE = """
import warnings
warnings.simplefilter("ignore")
import triton, triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from precision.backends.kernels.triton_forward import attention_forward as kernel

for dtype, width, max_subtraction, mask, causal in [
    ("fp16", 64, True, "", False), ("bf16", 128, False, "bool", False), ("fp32", 128, True, "additive", False),
    ("fp64", 64, True, "", True),
]:
    element = getattr(tl, {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32", "fp64": "float64"}[dtype])
    state = tl.float64 if dtype == "fp64" else tl.float32
    switches = dict(MAX_SUBTRACTION=max_subtraction, SCALE=0.3, CAUSAL=causal, MASK=mask, STATE=state, DOT=element,
                    ROWS=64, KEYS=32, WIDTH_K=width, WIDTH_V=width)
    kinds = {"pointer": "*" + dtype, "strides": ("i32",) * 4}
    signature = {name: "constexpr" if name in switches else kinds.get(name.rpartition("_")[2], "i32")
                 for name in kernel.arg_names}
    if mask == "bool":
        signature["mask_pointer"] = "*i1"
    constants = {(kernel.arg_names.index(name),): value for name, value in switches.items()}
    compiled = triton.compile(ASTSource(kernel, signature, constants), target=GPUTarget("cuda", 80, 32))
    assert compiled.metadata.shared <= 163 * 1024 and ".target sm_80" in compiled.asm["ptx"]
"""


def test_the_triton_kernel_compiles_for_a_gpu_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton.backends.nvidia")
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    done = subprocess.run([sys.executable, "-c", COMPILE], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

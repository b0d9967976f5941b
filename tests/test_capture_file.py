"""Capture files: what goes in comes out, and a file that is no sound capture is refused in one sentence."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from precision.errors import UsageError
from precision.inputs.capture_file import CallTensors, load_call, read_header, resolve, write
from precision.inputs.capture_header import METADATA_KEY


def make_call(name: str = "attn", dtype: torch.dtype = torch.float32, **changes: Any) -> CallTensors:
    """A call with q (2, 4, 5, 8), k (2, 4, 7, 8), v (2, 4, 7, 3)."""
    generator = torch.Generator().manual_seed(0)
    sizes = {"q": (2, 4, 5, 8), "k": (2, 4, 7, 8), "v": (2, 4, 7, 3)}
    tensors = {part: torch.randn(size, generator=generator).to(dtype) for part, size in sizes.items()}
    return CallTensors(name=name, **{**tensors, **changes})


CALLS = {
    "plain": make_call(),
    "bool mask": make_call(attn_mask=(torch.arange(7) < 6).expand(5, 7)),
    "additive mask": make_call(attn_mask=torch.linspace(-1, 0, 35).reshape(1, 1, 5, 7)),
    "causal, scaled": make_call(is_causal=True, scale=0.25, dropout_p=0.1),
    "grouped": make_call(k=torch.ones(2, 2, 7, 8), v=torch.ones(2, 2, 7, 3), enable_gqa=True),
    "not contiguous": make_call(q=torch.arange(320.0).reshape(2, 5, 4, 8).transpose(1, 2)),
    "fp64": make_call(dtype=torch.float64),
    "fp16": make_call(dtype=torch.float16),
    "bf16, float mask": make_call(dtype=torch.bfloat16, attn_mask=torch.zeros(5, 7)),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_round_trip(call: CallTensors, tmp_path: Path) -> None:
    header = write(tmp_path / "new" / "a.safetensors", [make_call("first"), call], model="toy", source="a text")
    assert header == read_header(tmp_path / "new" / "a.safetensors")
    assert (header.model, header.source, header.version) == ("toy", "a text", 1)
    back = load_call(tmp_path / "new" / "a.safetensors", 1)
    for part in ("q", "k", "v", "attn_mask"):
        before, after = getattr(call, part), getattr(back, part)
        assert (before is None and after is None) or (before.dtype == after.dtype and torch.equal(before, after))
    for switch in ("name", "is_causal", "scale", "enable_gqa", "dropout_p"):
        assert getattr(call, switch) == getattr(back, switch) == getattr(header.calls[1], switch)
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["a.safetensors"]


def test_header_describes_the_tensors(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    write(path, list(CALLS.values()), model="toy", source="")
    kinds = dict(zip(CALLS, read_header(path).calls, strict=True))
    assert (kinds["plain"].q, kinds["plain"].k, kinds["plain"].v) == ((2, 4, 5, 8), (2, 4, 7, 8), (2, 4, 7, 3))
    assert [kinds[name].mask for name in ("plain", "bool mask", "additive mask")] == ["none", "bool", "additive"]
    assert [kinds[name].dtype for name in ("plain", "fp64", "fp16", "bf16, float mask")] == [
        "fp32",
        "fp64",
        "fp16",
        "bf16",
    ]
    assert str(kinds["grouped"].shape) == "b2 h4/2 n5x7 d8/3"


def test_equal_content_gives_equal_bytes(tmp_path: Path) -> None:
    digests = {write(tmp_path / name, [make_call()], model="toy", source="").digest for name in "abc"}
    assert len(digests) == 1


BAD_CALLS = {
    "integer q": (make_call(q=torch.ones(2, 4, 5, 8, dtype=torch.int64)), "not of one float type"),
    "mixed types": (make_call(k=torch.ones(2, 4, 7, 8).half()), "not of one float type"),
    "empty": (make_call(q=torch.ones(2, 4, 0, 8)), "a dimension is zero"),
    "three dimensions": (make_call(q=torch.ones(4, 5, 8)), "four dimensions"),
    "batches": (make_call(q=torch.ones(1, 4, 5, 8)), "the batches differ"),
    "lengths of k and v": (make_call(v=torch.ones(2, 4, 6, 3)), "the same heads and length"),
    "widths of q and k": (make_call(k=torch.ones(2, 4, 7, 9)), "the same width"),
    "heads without enable_gqa": (make_call(q=torch.ones(2, 8, 5, 8)), "enable_gqa"),
    "heads not a multiple": (make_call(q=torch.ones(2, 6, 5, 8), enable_gqa=True), "a multiple"),
    "mask shape": (make_call(attn_mask=torch.ones(5, 6, dtype=torch.bool)), "does not broadcast"),
    "mask of one dimension": (make_call(attn_mask=torch.ones(7, dtype=torch.bool)), "does not broadcast"),
    "mask type": (make_call(attn_mask=torch.ones(5, 7, dtype=torch.int32)), "neither boolean nor float"),
    "infinite scale": (make_call(scale=float("inf")), "scale"),
    "no name": (make_call(name=""), "name"),
}


@pytest.mark.parametrize(("call", "why"), BAD_CALLS.values(), ids=BAD_CALLS)
def test_a_bad_call_is_refused_and_the_old_file_stays(call: CallTensors, why: str, tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    old = write(path, [make_call()], model="toy", source="")
    with pytest.raises(UsageError, match=why):
        write(path, [make_call(), call], model="toy", source="")
    assert read_header(path) == old
    assert list(tmp_path.iterdir()) == [path]


def test_no_call_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no call"):
        write(tmp_path / "a.safetensors", [], model="toy", source="")


def test_an_unwritable_path_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="cannot be written"):
        write(tmp_path / "file" / "a.safetensors", [make_call()], model="toy", source="")


class Trap:
    """Leaves a mark when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Callable[..., object], tuple[Path]]:
        return Path.touch, (self.mark,)


def _edit(path: Path, change: Callable[[dict[str, torch.Tensor], dict[str, Any]], object]) -> None:
    with safe_open(path, "pt") as file:
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        metadata = json.loads(file.metadata()[METADATA_KEY])
    change(tensors, metadata)
    save_file(tensors, path, {METADATA_KEY: json.dumps(metadata)})


BAD_FILES: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing": (Path.unlink, "does not exist"),
    "empty": (lambda path: path.write_bytes(b""), "not a whole safetensors file"),
    "truncated": (lambda path: path.write_bytes(path.read_bytes()[:-100]), "not a whole safetensors file"),
    "cut in the header": (lambda path: path.write_bytes(path.read_bytes()[:40]), "not a whole safetensors file"),
    "a pickle": (lambda path: path.write_bytes(pickle.dumps(Trap(path.with_name("mark")))), "not a whole safetensors"),
    "a torch file": (lambda path: torch.save({"q": torch.ones(3)}, path), "not a whole safetensors file"),
    "text": (lambda path: path.write_text("q, k and v"), "not a whole safetensors file"),
    "a model's weights": (lambda path: save_file({"w": torch.ones(3)}, path), "not a capture"),
    "other metadata": (lambda path: save_file({"w": torch.ones(3)}, path, {"format": "pt"}), "not a capture"),
    "metadata not JSON": (lambda path: save_file({}, path, {METADATA_KEY: "{"}), "cannot be read"),
    "metadata lacks all": (lambda path: save_file({}, path, {METADATA_KEY: "{}"}), "cannot be read .version"),
    "a later version": (lambda path: _edit(path, lambda _, meta: meta.update(version=2)), "cannot be read .version"),
    "no calls": (lambda path: _edit(path, lambda _, meta: meta.update(calls=[])), "cannot be read .calls"),
    "scale a text": (lambda path: _edit(path, lambda _, m: m["calls"][0].update(scale="1")), "calls.0.scale"),
    "q missing": (lambda path: _edit(path, lambda tensors, _: tensors.pop("0.q")), "lacks q in call 0 ..attn.."),
    "k and v missing": (lambda path: _edit(path, lambda t, _: (t.pop("0.k"), t.pop("0.v"))), "lacks k and v"),
    "stray tensor": (lambda path: _edit(path, lambda t, _: t.update({"1.q": torch.ones(1)})), "belongs to no call"),
    "integer q": (lambda path: _edit(path, lambda t, _: t.update({"0.q": t["0.q"].int()})), "types I32, F32, F32"),
    "empty q": (lambda path: _edit(path, lambda t, _: t.update({"0.q": t["0.q"][:, :, :0]})), "a dimension is zero"),
}


@pytest.mark.parametrize(("spoil", "why"), BAD_FILES.values(), ids=BAD_FILES)
def test_a_bad_file_is_refused_in_one_sentence(spoil: Callable[[Path], object], why: str, tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    write(path, [make_call()], model="toy", source="")
    spoil(path)
    for read in (read_header, lambda path: load_call(path, 0)):
        with pytest.raises(UsageError, match=why) as raised:
            read(path)
        assert str(path) in str(raised.value)
        assert "precision capture" in str(raised.value)
        assert "\n" not in str(raised.value)
    assert not (tmp_path / "mark").exists()


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        read_header(tmp_path)


@pytest.mark.parametrize("index", [-1, 1])
def test_an_index_outside_is_refused(index: int, tmp_path: Path) -> None:
    write(tmp_path / "a.safetensors", [make_call()], model="toy", source="")
    with pytest.raises(UsageError, match=f"no call {index}"):
        load_call(tmp_path / "a.safetensors", index)


def test_resolve_finds_what_ships_and_paths(tmp_path: Path) -> None:
    write(tmp_path / "a.safetensors", [make_call()], model="toy", source="")
    assert resolve(str(tmp_path / "a.safetensors")) == tmp_path / "a.safetensors"
    assert resolve("minilm").name == "minilm.safetensors"
    with pytest.raises(UsageError, match="did you mean 'minilm'"):
        resolve("minilmm")


def test_what_ships_is_six_layers_of_twelve_heads() -> None:
    path = resolve("minilm")
    header = read_header(path)
    assert [call.name for call in header.calls] == [f"encoder.layer.{layer}.attention.self" for layer in range(6)]
    assert {(call.q, call.k, call.v) for call in header.calls} == {((1, 12, 68, 32),) * 3}
    assert {(call.dtype, call.mask, call.is_causal) for call in header.calls} == {("fp32", "bool", False)}
    assert path.stat().st_size <= 2_000_000


def test_raw_logits_of_what_ships() -> None:
    """Raw logits of this model: a standard deviation of 9 to 30 a layer, the largest 420 (5 %; padding included)."""
    path = resolve("minilm")
    calls = [load_call(path, index) for index in range(6)]
    logits = [call.q.double() @ call.k.double().mT for call in calls]  # (B, H, L, S)
    deviations = [float(scores.std()) for scores in logits]
    assert min(deviations) == pytest.approx(9, rel=0.05)
    assert max(deviations) == pytest.approx(30, rel=0.05)
    assert max(float(scores.abs().max()) for scores in logits) == pytest.approx(420, rel=0.05)


def test_a_header_is_read_without_torch() -> None:
    code = (
        "import sys; from precision.inputs.capture_file import read_header, resolve; "
        "assert len(read_header(resolve('minilm')).calls) == 6; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)

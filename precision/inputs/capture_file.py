"""Capture files: tensors that a model handed to scaled dot-product attention, written, found and read.

Importing this module, and reading a header, imports no torch. Only safetensors reads the files, so nothing in
them is ever executed.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from precision.errors import UsageError, nearest
from precision.inputs.capture_header import CallMetadata, CapturedCall, Metadata, dump, parse
from precision.inputs.safetensors_file import opened

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["CallTensors", "CaptureHeader", "CapturedCall", "load_call", "read_header", "resolve", "write"]


@dataclass(frozen=True)
class CaptureHeader:
    """What a file holds: its calls in the order the model made them, and where they come from.

    `source` is the text the model read, or the function that ran it. `digest` is the SHA-256 of the file.
    """

    calls: tuple[CapturedCall, ...]
    model: str
    source: str
    torch_version: str
    version: int
    digest: str


@dataclass(frozen=True)
class CallTensors:
    """One call of attention as the model made it, on the CPU.

    q: (B, Hq, L, d_k), k: (B, Hkv, S, d_k), v: (B, Hkv, S, d_v); attn_mask broadcasts to (B, Hq, L, S) and is
    boolean (True takes part) or floating (added to the scaled scores); scale None means 1/sqrt(d_k).
    """

    name: str
    q: Tensor
    k: Tensor
    v: Tensor
    attn_mask: Tensor | None = None
    is_causal: bool = False
    scale: float | None = None
    enable_gqa: bool = False
    dropout_p: float = 0.0


def resolve(name_or_path: str) -> Path:
    """The file of a capture that ships (`minilm`) or of a path; raises UsageError when there is neither."""
    folder = Path(str(resources.files("precision") / "data"))
    shipped = {path.stem: path for path in folder.glob("*.safetensors")}
    path = shipped.get(name_or_path, Path(name_or_path))
    if not path.is_file():
        raise UsageError(
            f"{name_or_path!r} is neither a file nor a capture that ships; {nearest(name_or_path, shipped)}; "
            "`precision capture` makes such files"
        )
    return path


def read_header(path: Path) -> CaptureHeader:
    """Everything in a file but the numbers; raises UsageError, in one sentence, when it is no sound capture."""
    return _read_header(path, shown=path)


def load_call(path: Path, index: int) -> CallTensors:
    """The tensors and switches of call `index`, counted from 0; raises UsageError on a bad file or index."""
    with opened(path, "pt", shown=path) as file:
        metadata, calls = parse(file, path)
        if not 0 <= index < len(calls):
            raise UsageError(f"{str(path)!r} has no call {index}; it holds calls 0 to {len(calls) - 1}")
        q, k, v = (file.get_tensor(f"{index}.{part}") for part in ("q", "k", "v"))
        attn_mask = None if calls[index].mask == "none" else file.get_tensor(f"{index}.mask")
    return CallTensors(q=q, k=k, v=v, attn_mask=attn_mask, **metadata.calls[index].model_dump())


def write(path: Path, calls: Sequence[CallTensors], *, model: str, source: str) -> CaptureHeader:
    """Write a capture, whole or not at all, and give its header; missing folders are made.

    Raises UsageError when there is no call, when a call is not one that `read_header` accepts, or when the file
    cannot be written.
    """
    import torch
    from safetensors.torch import save

    if not calls:
        raise UsageError("there is no call of attention to write")
    tensors: dict[str, Tensor] = {}
    for index, call in enumerate(calls):
        for part, tensor in (("q", call.q), ("k", call.k), ("v", call.v), ("mask", call.attn_mask)):
            if tensor is not None:  # cloned, since safetensors refuses tensors that share memory
                tensors[f"{index}.{part}"] = tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
    try:
        metadata = Metadata(
            version=1,
            model=model,
            source=source,
            torch_version=str(torch.__version__),
            calls=[CallMetadata.model_validate(call, from_attributes=True) for call in calls],
        )
    except ValidationError as error:
        first = error.errors()[0]
        raise UsageError(f"a call has a {first['loc'][0]} that cannot be written: {first['msg'].lower()}") from None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # A folder beside the target: a rename is atomic within one file system only.
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".capture-") as folder:
            unfinished = Path(folder) / path.name
            unfinished.write_bytes(save(tensors, dump(metadata)))
            header = _read_header(unfinished, shown=path)
            os.replace(unfinished, path)
    except OSError as error:
        raise UsageError(f"{str(path)!r} cannot be written: {error.strerror or error}") from error
    return header


def _read_header(path: Path, shown: Path) -> CaptureHeader:
    with opened(path, "numpy", shown) as file:
        metadata, calls = parse(file, shown)
        with path.open("rb") as raw:
            digest = hashlib.file_digest(raw, "sha256").hexdigest()
    return CaptureHeader(calls, metadata.model, metadata.source, metadata.torch_version, metadata.version, digest)

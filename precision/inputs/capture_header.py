"""What a capture file says about itself: the calls of attention it holds, read and checked without torch.

A capture is a safetensors file. Call `i` owns the tensors `i.q`, `i.k`, `i.v` and, if it had a mask, `i.mask`;
one entry of the file's metadata holds a JSON object with the rest. Shapes, dtypes and the kind of mask stand in
no second place: they are those of the tensors.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError

from precision.inputs.safetensors_file import SafetensorsFile, unusable
from precision.problem import Shape

METADATA_KEY = "attention-precision capture"
MaskKind = Literal["none", "bool", "additive"]

_DTYPES = {"F64": "fp64", "F32": "fp32", "F16": "fp16", "BF16": "bf16"}  # safetensors' names and ours


class CallMetadata(BaseModel):
    """The part of a call that its tensors do not tell."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: Annotated[str, Field(min_length=1)]
    is_causal: bool
    scale: FiniteFloat | None
    enable_gqa: bool
    dropout_p: Annotated[float, Field(ge=0, le=1)]


class Metadata(BaseModel):
    """The metadata of a file; `version` comes first, so that a later format is told by its version."""

    model_config = ConfigDict(extra="forbid", strict=True)

    version: Literal[1]
    model: str
    source: str
    torch_version: str
    calls: Annotated[list[CallMetadata], Field(min_length=1)]


@dataclass(frozen=True)
class CapturedCall:
    """One call of scaled dot-product attention, without its numbers.

    q: (B, Hq, L, d_k), k: (B, Hkv, S, d_k), v: (B, Hkv, S, d_v); `scale` None means 1/sqrt(d_k). `dropout_p` is
    what the model passed; replaying a call leaves dropout out.
    """

    name: str
    q: tuple[int, ...]
    k: tuple[int, ...]
    v: tuple[int, ...]
    dtype: str
    mask: MaskKind
    is_causal: bool
    scale: float | None
    enable_gqa: bool
    dropout_p: float

    @property
    def shape(self) -> Shape:
        """The shape of the problem that the call poses."""
        batch, q_heads, q_len, d_k = self.q
        return Shape(batch, q_heads, self.k[1], q_len, self.k[2], d_k, self.v[3])


def parse(file: SafetensorsFile, path: Path) -> tuple[Metadata, tuple[CapturedCall, ...]]:
    """Metadata and calls of an open file, checked against its tensors; raises UsageError."""
    text = (file.metadata() or {}).get(METADATA_KEY)
    if text is None:
        raise unusable(path, "is a safetensors file but not a capture: it has no metadata of one")
    try:
        metadata = Metadata.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "all"
        raise unusable(path, f"has capture metadata that cannot be read ({where}: {first['msg'].lower()})") from None
    calls = tuple(_call(file, index, call, path) for index, call in enumerate(metadata.calls))
    known = {f"{index}.{part}" for index in range(len(calls)) for part in ("q", "k", "v", "mask")}
    if stray := sorted(set(file.keys()) - known):
        raise unusable(path, f"holds a tensor {stray[0]!r} that belongs to no call")
    return metadata, calls


def dump(metadata: Metadata) -> dict[str, str]:
    """The metadata as a safetensors file stores it: one entry, so that equal content gives equal bytes."""
    return {METADATA_KEY: json.dumps(metadata.model_dump(), allow_nan=False)}


def _call(file: SafetensorsFile, index: int, metadata: CallMetadata, path: Path) -> CapturedCall:
    keys = set(file.keys())
    where = f"in call {index} ({metadata.name!r})"
    if missing := [part for part in ("q", "k", "v") if f"{index}.{part}" not in keys]:
        raise unusable(path, f"lacks {' and '.join(missing)} {where}")
    (q, q_type), (k, k_type), (v, v_type) = (_stored(file, f"{index}.{part}") for part in ("q", "k", "v"))
    if q_type not in _DTYPES or {k_type, v_type} != {q_type}:
        raise unusable(path, f"holds q, k, v of types {q_type}, {k_type}, {v_type} {where}, not of one float type")
    if fault := _fault(q, k, v, metadata.enable_gqa):
        raise unusable(path, f"holds q {q}, k {k}, v {v} {where}: {fault}")
    mask: MaskKind = "none"
    if f"{index}.mask" in keys:
        shape, mask_type = _stored(file, f"{index}.mask")
        if mask_type != "BOOL" and mask_type not in _DTYPES:
            raise unusable(path, f"holds a mask of type {mask_type} {where}, neither boolean nor float")
        if not _broadcasts(shape, (*q[:3], k[2])):
            raise unusable(path, f"holds a mask {shape} {where} that does not broadcast to {(*q[:3], k[2])}")
        mask = "bool" if mask_type == "BOOL" else "additive"
    return CapturedCall(q=q, k=k, v=v, dtype=_DTYPES[q_type], mask=mask, **metadata.model_dump())


def _stored(file: SafetensorsFile, key: str) -> tuple[tuple[int, ...], str]:
    tensor = file.get_slice(key)
    return tuple(tensor.get_shape()), str(tensor.get_dtype())


def _fault(q: tuple[int, ...], k: tuple[int, ...], v: tuple[int, ...], enable_gqa: bool) -> str | None:
    if not len(q) == len(k) == len(v) == 4:
        return "each must have four dimensions (batch, heads, length, width)"
    if 0 in (*q, *k, *v):
        return "a dimension is zero"
    if not q[0] == k[0] == v[0]:
        return "the batches differ"
    if k[1:3] != v[1:3] or q[3] != k[3]:
        return "k and v need the same heads and length, q and k the same width"
    if q[1] != k[1] and not (enable_gqa and q[1] % k[1] == 0):
        return "the heads of q must be those of k, or with enable_gqa a multiple of them"
    return None


def _broadcasts(shape: tuple[int, ...], to: tuple[int, ...]) -> bool:
    return 2 <= len(shape) <= len(to) and all(a in (1, b) for a, b in zip(shape[::-1], to[::-1], strict=False))

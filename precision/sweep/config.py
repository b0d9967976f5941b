"""Configurations: what a TOML file may say, checked when it is read."""

from __future__ import annotations

import textwrap
import tomllib
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from precision.errors import UsageError, nearest


def _listed(value: Any) -> Any:
    return value if isinstance(value, list) else [value]


# No side of a tensor that any machine holds is as long, and products of a few of them stay within Python's float.
_LONGEST = 2**31
_LARGEST = 2**24  # bytes of a configuration

Names = Annotated[list[str], BeforeValidator(_listed), Field(min_length=1)]
Counts = Annotated[list[Annotated[int, Field(ge=1, lt=_LONGEST)]], BeforeValidator(_listed), Field(min_length=1)]
Lengths = Annotated[list[Annotated[int, Field(ge=0, lt=_LONGEST)]], BeforeValidator(_listed), Field(min_length=1)]
# Below 2^30: see the streams in inputs/make.py.
Seeds = Annotated[list[Annotated[int, Field(ge=0, lt=2**30)]], BeforeValidator(_listed), Field(min_length=1)]
Scales = Annotated[list[str | float], BeforeValidator(_listed), Field(min_length=1)]


class Sweep(BaseModel):
    """One grid: the product of all its axes. A single value is an axis of one.

    Keys left out take the query's side: kv_heads is q_heads, kv_len is q_len, d_v is d_k.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    name: str
    methods: Names
    inputs: Names = ["normal"]
    dtype: Names = ["fp32", "fp16", "bf16"]
    preset: Names | None = None
    batch: Lengths | None = None
    q_heads: Counts | None = None
    kv_heads: Counts | None = None
    q_len: Lengths | None = None
    kv_len: Lengths | None = None
    d_k: Counts | None = None
    d_v: Counts | None = None
    mask: Names | None = None
    scale: Scales | None = None
    seed: Seeds = [0]
    backward: bool = False
    latency: bool = False


class Config(BaseModel):
    """A whole configuration: a title and its sweeps."""

    model_config = ConfigDict(extra="forbid", strict=True)

    title: str
    sweep: Annotated[list[Sweep], Field(min_length=1)]


def config_names() -> list[str]:
    """The configurations that ship with the package."""
    return sorted(Path(entry.name).stem for entry in _shipped().iterdir() if entry.name.endswith(".toml"))


def read_config_text(name_or_path: str) -> str:
    """The TOML text of a configuration that ships, or of a file; raises UsageError when there is neither."""
    if name_or_path in config_names():
        return (_shipped() / f"{name_or_path}.toml").read_text(encoding="utf-8")
    try:
        with Path(name_or_path).open("rb") as file:
            content = file.read(_LARGEST + 1)
        if len(content) > _LARGEST:  # also a device that never ends
            raise UsageError(f"{name_or_path!r} is longer than any configuration; name a TOML file")
        return content.decode()
    except FileNotFoundError:
        raise UsageError(
            f"{name_or_path!r} is neither a file nor one that ships; {nearest(name_or_path, config_names())}"
        ) from None
    except UsageError:
        raise
    except (OSError, ValueError) as error:  # ValueError: bytes that are no UTF-8, or a name with a NUL
        raise UsageError(f"the configuration {name_or_path!r} cannot be read: {error}") from None


def parse_config(text: str) -> Config:
    """A configuration from its TOML text; raises UsageError with the first thing that is wrong."""
    try:
        return Config.model_validate(tomllib.loads(text))
    except ValidationError as error:
        raise UsageError(f"the configuration is wrong: {_sentence(error.errors()[0])}") from None
    except ValueError as error:  # tomllib's own error, or Python's for a number of thousands of digits
        raise UsageError(f"the configuration is not valid TOML: {error}") from None
    except RecursionError:
        raise UsageError("the configuration is not valid: its lists or tables are nested too deeply") from None


def _sentence(error: Any) -> str:
    location = error["loc"]
    where = ""
    if len(location) > 1 and location[0] == "sweep":
        where = f" in sweep {location[1] + 1}"
        location = location[2:]
    key = location[0] if location else "the file"
    if error["type"] == "extra_forbidden":
        known = Sweep.model_fields if where else Config.model_fields
        return f"unknown key {key!r}{where}; {nearest(str(key), known)}"
    if error["type"] == "missing":
        return f"the key {key!r} is missing{where}"
    message = error["msg"][0].lower() + error["msg"][1:]
    return f"key {key!r}{where}: {message}, not {_shown(error['input'])}"


def _shown(value: object) -> str:
    """A wrong value, in a line that can be read."""
    try:
        return textwrap.shorten(repr(value), 80, placeholder="...")
    except ValueError:  # Python writes out no integer of thousands of digits
        return "a number of thousands of digits"


def _shipped() -> Traversable:
    return resources.files("precision") / "configs"

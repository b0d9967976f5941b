"""Open a safetensors file, and say in one sentence why one cannot be used. Imports no torch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from safetensors import SafetensorError, safe_open

from precision.errors import UsageError


class SafetensorsFile(Protocol):
    """What `safetensors.safe_open` opens; the package itself declares no types for it."""

    def metadata(self) -> dict[str, str] | None: ...
    def keys(self) -> list[str]: ...
    def get_slice(self, name: str) -> Any: ...
    def get_tensor(self, name: str) -> Any: ...


def unusable(path: Path, why: str) -> UsageError:
    """The error for a file that is no usable capture; `why` goes on from the file's name."""
    return UsageError(f"{str(path)!r} {why}; `precision capture` makes a file that can be used")


@contextmanager
def opened(path: Path, framework: str, shown: Path) -> Iterator[SafetensorsFile]:
    """The open file, its tensors in a framework (`numpy`, `pt`); raises UsageError, which names `shown`."""
    try:
        with safe_open(path, framework) as file:
            yield file
    except SafetensorError as error:
        raise unusable(shown, f"is not a whole safetensors file ({error})") from None
    except FileNotFoundError:
        raise unusable(shown, "does not exist") from None
    except OSError as error:
        raise unusable(shown, f"cannot be read ({error.strerror or error})") from None

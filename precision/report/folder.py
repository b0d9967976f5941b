"""The folder of a report: what something else put there, or changed since, stays as it is.

A list in the folder, as `sha256sum` writes it, says which files a report put there and what is in them.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath

from precision.errors import UsageError

SUMS = "attention-precision.sha256"


def write_files(out: Path, files: Mapping[str, str]) -> None:
    """Write texts by their names in the folder `out`, which is made when it is not there.

    Files of an earlier report that this one lacks are removed, unless they were changed since. Raises UsageError when
    the folder cannot be written, and before anything is written when a file in it is in the way.
    """
    require_free(out, files)
    try:
        own = _own(out)
        kept = {name for name, text in files.items() if name not in own and _read(out / name) == text}
        texts = {name: text for name, text in files.items() if name not in kept}
        sums = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in texts.items()}
        out.mkdir(parents=True, exist_ok=True)
        stale = own - set(texts)
        # Before the files, so that one that is there when something stops this is known all the same.
        _write_sums(out, [*_read_sums(out), *sums.items()])
        for name, text in texts.items():
            (out / name).parent.mkdir(exist_ok=True)
            _replace(out / name, text)
        for name in stale:
            (out / name).unlink()
        _write_sums(out, sums.items())
    except OSError as error:
        raise UsageError(f"the pages cannot be written to {str(out)!r}: {error}; name another folder") from error


def require_free(out: Path, files: Mapping[str, str | None]) -> None:
    """Raise UsageError when there is a file of one of these names, with another text, that is not a report's own."""
    own = _own(out)
    for name, text in files.items():
        if (out / name).exists() and name not in own and _read(out / name) != text:
            raise UsageError(
                f"{str(out / name)!r} is no report's, or was changed since, and is not overwritten; move it away, or "
                "name another folder with --out"
            )


def _own(out: Path) -> set[str]:
    """The files that a report put into the folder, as it left them."""
    return {name for name, digest in _read_sums(out) if (path := out / name).is_file() and _digest(path) == digest}


def _read_sums(out: Path) -> list[tuple[str, str]]:
    """Name and digest by line; names that lead out of the folder are passed over."""
    lines = (line.partition("  ") for line in (_read(out / SUMS) or "").splitlines())
    return [
        (name, digest)
        for digest, _, name in lines
        if name and not PurePosixPath(name).is_absolute() and ".." not in PurePosixPath(name).parts
    ]


def _write_sums(out: Path, sums: Iterable[tuple[str, str]]) -> None:
    _replace(out / SUMS, "".join(f"{digest}  {name}\n" for name, digest in sorted(set(sums))))


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else None


def _replace(path: Path, text: str) -> None:
    """All of the text or nothing of it."""
    part = path.with_name(f"{path.name}.part")
    part.write_text(text, encoding="utf-8", newline="")
    os.replace(part, path)

"""Which runs are being written: the process that writes one holds a lock on a file beside the store."""

from __future__ import annotations

from pathlib import Path

from filelock import FileLock, Timeout


class RunLock:
    """A lock on one run of a store, which ends with the process that holds it, however it ends."""

    def __init__(self, store: Path, run: int) -> None:
        self._file = store.with_name(f"{store.name}-run{run}.lock")
        self._lock = FileLock(self._file)

    def acquire(self) -> bool:
        """Take the lock; False when another process has it. Raises OSError where files cannot be locked."""
        try:
            self._lock.acquire(timeout=0)
        except Timeout:
            return False
        return True

    def release(self, *, remove: bool) -> None:
        """Let go of the lock, and remove the file when nobody will look for it again."""
        if remove:
            self._file.unlink(missing_ok=True)
        self._lock.release()

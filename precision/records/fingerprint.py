"""Which environments are the same: rows of unlike ones are never pooled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from precision.problem import digest_of


def fingerprint(environment: Mapping[str, Any]) -> str:
    """What two environments share when their rows may be pooled."""
    return digest_of(dict(environment))

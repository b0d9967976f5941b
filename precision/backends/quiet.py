"""Parts of torch that warn of torch's own old code when they are imported."""

from __future__ import annotations

import importlib
import warnings


def import_quietly(module: str) -> None:
    """Import a module of torch without its DeprecationWarnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        importlib.import_module(module)

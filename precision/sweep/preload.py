"""Imported once, by the process that every worker is a copy of: all that a worker's first case would import."""

from __future__ import annotations

import importlib

from precision.sweep.parentage import end_with_parent, fall_silent

fall_silent()
end_with_parent()  # which waits for it while it imports; later it watches for that itself
for _name in ("precision.sweep.measure", "precision.sweep.planning", "torch._dynamo"):  # the last when torch is seeded
    importlib.import_module(_name)
for _name in ("backends.backend:backends", "inputs.distribution:distributions"):
    _module, _, _registry = _name.partition(":")
    getattr(importlib.import_module(f"precision.{_module}"), _registry).names()
end_with_parent(False)

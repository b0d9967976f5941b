"""Recipes: models that `precision capture NAME` knows how to run. One file a recipe."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from torch.nn import Module

from precision.registry import Registry


class Recipe(Protocol):
    """A model and something for it to read."""

    @property
    def model(self) -> str:
        """The model's published name."""
        ...

    @property
    def source(self) -> str:
        """What the model reads."""
        ...

    def prepare(self) -> tuple[Module, Callable[[], object]]:
        """The model, and a function that runs it; raises UsageError when something is not installed."""
        ...


recipes: Registry[Recipe] = Registry("recipe", __name__)

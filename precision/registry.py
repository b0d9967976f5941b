"""Registries: a backend, a distribution, a mask or a scale rule is a frozen dataclass under a name.

The fields of the dataclass are its options, so one class says what may be configured, its defaults and
its types. Adding one is one file with one decorator:

    @backends.register("mine")
    @dataclass(frozen=True)
    class Mine:
        '''One sentence that `precision list backends` shows.'''
        tile: int = 64
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import MISSING, dataclass, fields
from typing import Any, Generic, TypeVar

import pydantic

from precision.errors import UsageError, nearest
from precision.spec import Spec

T = TypeVar("T")
Class = TypeVar("Class", bound=type)


class Registry(Generic[T]):
    """Names to classes of one kind; `package` is the package whose modules register themselves when imported."""

    def __init__(self, kind: str, package: str) -> None:
        self.kind = kind
        self._package = package
        self._classes: dict[str, type[T]] = {}
        self._readers: dict[type[T], pydantic.TypeAdapter[T]] = {}  # of classes that were built; dear to make
        self._is_discovered = False

    def register(self, name: str) -> Callable[[Class], Class]:
        """Class decorator; raises ValueError when the name is taken."""

        def add(cls: Class) -> Class:
            if name in self._classes:
                raise ValueError(f"two {self.kind}s are called {name!r}")
            self._classes[name] = cls
            return cls

        return add

    def names(self) -> list[str]:
        """Every registered name, in alphabetical order."""
        self._discover()
        return sorted(self._classes)

    def items(self) -> Iterator[tuple[str, type[T]]]:
        """Name and class, in alphabetical order."""
        return ((name, self._classes[name]) for name in self.names())

    def build(self, spec: Spec | str) -> T:
        """The instance that a spec describes; raises UsageError on an unknown name, option or value."""
        spec = Spec.parse(spec) if isinstance(spec, str) else spec
        cls = self._find(spec.name)
        known = [field.name for field in fields(cls)]  # type: ignore[arg-type]  # every entry is a dataclass
        for option, _ in spec.options:
            if option not in known:
                raise UsageError(f"{self.kind} {spec.name!r} has no option {option!r}; {nearest(option, known)}")
        try:
            return self._reader(cls).validate_python(dict(spec.options))
        except pydantic.ValidationError as error:
            first = error.errors()[0]
            where = "".join(f"option {part}: " for part in first["loc"][:1])  # none: options contradict each other
            reason = first["msg"].removeprefix("Value error, ")
            raise UsageError(f"{self.kind} {spec}: {where}{reason[:1].lower()}{reason[1:]}") from None

    def canonical(self, spec: Spec | str) -> str:
        """The one text of this spec: options in order, typed, those at their default left out."""
        spec = Spec.parse(spec) if isinstance(spec, str) else spec
        built: Any = self.build(spec)
        given = {
            field.name: _text(getattr(built, field.name))
            for field in fields(built)
            if getattr(built, field.name) != field.default
        }
        return str(Spec(spec.name, tuple(sorted(given.items()))))

    def _find(self, name: str) -> type[T]:
        self._discover()
        if name not in self._classes:
            raise UsageError(f"unknown {self.kind} {name!r}; {nearest(name, self._classes)}")
        return self._classes[name]

    def _reader(self, cls: type[T]) -> pydantic.TypeAdapter[T]:
        if cls not in self._readers:
            self._readers[cls] = pydantic.TypeAdapter(cls)
        return self._readers[cls]

    def _discover(self) -> None:
        if self._is_discovered:
            return
        package = importlib.import_module(self._package)
        for module in pkgutil.iter_modules(getattr(package, "__path__", []), f"{self._package}."):
            importlib.import_module(module.name)
        self._is_discovered = True


@dataclass(frozen=True)
class Entry:
    """A registered name for people: its options with their defaults, and the first sentence of its docstring."""

    name: str
    options: str
    meaning: str


def describe(registry: Registry[Any]) -> list[Entry]:
    """Every entry of a registry, in alphabetical order."""
    return [Entry(name, _options(cls), (cls.__doc__ or "").partition("\n")[0]) for name, cls in registry.items()]


def _options(cls: type) -> str:
    return ", ".join(
        field.name if field.default in (MISSING, None) else f"{field.name}={_text(field.default)}"
        for field in fields(cls)
    )


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)

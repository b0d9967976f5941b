"""A user's own function, named on the command line as FILE.py:FUNCTION or package.module:FUNCTION."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from precision.errors import UsageError, nearest

T = TypeVar("T")


@contextmanager
def loaded(target: str) -> Iterator[Callable[..., Any]]:
    """The function that `target` names; what lies beside its file can be imported inside the context.

    Raises UsageError when the target has no colon, cannot be imported, or has no such function.
    """
    place, colon, name = target.rpartition(":")
    if not (colon and place and name):
        raise UsageError(f"{target!r} is not of the form file.py:function or package.module:function")
    is_file = place.endswith(".py")
    folder = UsageError(f"{place!r} is a folder; name a file in it: {place.rstrip('/')}/FILE.py:{name}")
    if Path(place).is_dir() and not place.isidentifier():
        raise folder
    with _importable(Path(place).parent if is_file else Path.cwd()):
        module = attempt(target, "cannot be imported", lambda: _load_file(place) if is_file else _load_module(place))
        try:
            function = attrgetter(name)(module)  # Class.method is a name too
        except AttributeError:
            if getattr(module, "__file__", None) is None and Path(place).is_dir():  # Python imports it as a namespace
                raise folder from None
            raise UsageError(f"{place!r} has no function {name!r}; {nearest(name, _functions(module))}") from None
        if not callable(function):
            raise UsageError(f"{name!r} in {place!r} is no function; {nearest(name, _functions(module))}")
        yield function


def _functions(module: ModuleType) -> list[str]:
    """The functions that the module itself defines."""
    found = vars(module).items()
    return [key for key, value in found if inspect.isfunction(value) and value.__module__ == module.__name__]


def attempt(target: str, what: str, action: Callable[[], T]) -> T:
    """Do something with the user's code, which may raise anything: that becomes a UsageError with its cause."""
    try:
        return action()
    except UsageError:
        raise
    except (Exception, SystemExit) as error:  # a script may end itself
        raise UsageError(f"{target!r} {what}: {type(error).__name__}: {error}") from error


def _load_file(place: str) -> ModuleType:
    path = Path(place)
    if not path.is_file():
        raise UsageError(f"there is no file {place!r}")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None  # a name that ends in .py has a loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _load_module(place: str) -> ModuleType:
    return importlib.import_module(place)


@contextmanager
def _importable(folder: Path) -> Iterator[None]:
    """Nothing is written beside the user's code: Python would leave a __pycache__ there."""
    sys.path.insert(0, str(folder))
    writes_nothing, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        yield
    finally:
        sys.dont_write_bytecode = writes_nothing
        sys.path.remove(str(folder))

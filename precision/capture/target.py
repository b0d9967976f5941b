"""`precision capture TARGET`: a recipe's name, or the user's own function that runs a model."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TypeVar

from precision.capture.recipes import recipes
from precision.capture.record import record
from precision.errors import UsageError, nearest
from precision.inputs.capture_file import CallTensors, CaptureHeader, write
from precision.spec import Spec

T = TypeVar("T")


def capture(target: str, out: Path) -> CaptureHeader:
    """Run a model and write what it hands to SDPA.

    `target` is a recipe (`minilm`, `minilm[pad_to=0]`) or `file.py:function` or `package.module:function`: a
    function that takes no argument and runs a model. Raises UsageError when the target cannot be run, does not
    call SDPA, or the file cannot be written.
    """
    if ":" in target:
        model, source, calls = target, f"the function {target}", _record_function(target)
    else:
        name = Spec.parse(target).name
        if name not in recipes.names():
            raise UsageError(
                f"{target!r} is neither a recipe nor file.py:function nor package.module:function; "
                f"{nearest(name, recipes.names())}"
            )
        recipe = recipes.build(target)
        network, run = recipe.prepare()
        model, source, calls = recipe.model, recipe.source, record(run, network)
    if not calls:
        raise UsageError(
            f"{target!r} ran, but did not call torch's scaled_dot_product_attention; load the model so that it does "
            "(transformers: attn_implementation='sdpa', not 'eager')"
        )
    return write(out, calls, model=model, source=source)


def _record_function(target: str) -> list[CallTensors]:
    place, _, name = target.rpartition(":")
    is_file = place.endswith(".py")
    with _importable(Path(place).parent if is_file else Path.cwd()):
        module = _attempt(target, "cannot be imported", lambda: _load_file(place) if is_file else _load_module(place))
        function = getattr(module, name, None)
        if not callable(function):
            known = [key for key, value in vars(module).items() if inspect.isfunction(value)]
            raise UsageError(f"{place!r} has no function {name!r}; {nearest(name, known)}")
        try:
            inspect.signature(function).bind()
        except TypeError:
            raise UsageError(f"{target!r} takes arguments; give a function without any, which runs the model") from None
        return _attempt(target, "did not run", lambda: record(function))


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


def _attempt(target: str, what: str, action: Callable[[], T]) -> T:
    try:
        return action()
    except UsageError:
        raise
    except Exception as error:  # the user's code may raise anything; the cause stays attached
        raise UsageError(f"{target!r} {what}: {type(error).__name__}: {error}") from error


@contextmanager
def _importable(folder: Path) -> Iterator[None]:
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))

"""`precision capture TARGET`: a recipe's name, or the user's own function that runs a model."""

from __future__ import annotations

import inspect
from pathlib import Path

from precision.capture.recipes import recipes
from precision.capture.record import record
from precision.errors import UsageError, nearest
from precision.inputs.capture_file import CallTensors, CaptureHeader, write
from precision.loading import attempt, loaded
from precision.spec import Spec


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
    with loaded(target) as function:
        try:
            inspect.signature(function).bind()
        except TypeError:
            raise UsageError(f"{target!r} takes arguments; give a function without any, which runs the model") from None
        return attempt(target, "did not run", lambda: record(function))

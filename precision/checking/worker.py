"""Inside of a worker process: the session of one kernel, which lives as long as the process."""

from __future__ import annotations

import io
import os
from contextlib import ExitStack, redirect_stdout
from typing import TYPE_CHECKING, Any

from precision.sweep.worker import ending_at_once

if TYPE_CHECKING:
    from precision.checking.session import Level, Session
    from precision.checking.steps import Step

# What a script prints where something is wrong, if it does not raise: see Case.judge and Invariances.
WRONG = ("wrong", "overwrites", "differ")
_open = ExitStack()  # what the session needs while it lives: the user's folder on sys.path, above all
_session: Session


def start(target: str, dtypes: tuple[str, ...], device: str, backward: bool, level: Level) -> list[Step]:
    """Import the kernel and plan its check; raises UsageError as `precision.check` does."""
    global _session
    from precision.checking.plan import plan
    from precision.checking.session import open_session
    from precision.formats import find_format
    from precision.kernel import Kernel
    from precision.loading import loaded
    from precision.sweep.conduct import limited_memory
    from precision.sweep.environment import find_device

    for dtype in dtypes:
        find_format(dtype)
    place = find_device(device)
    with ending_at_once():
        kernel = Kernel.of(_open.enter_context(loaded(target)))
    _open.enter_context(limited_memory(place, None))
    _session = _open.enter_context(open_session(target, kernel, place, backward, level))
    return plan(dtypes)


def ask(what: str, *arguments: Any) -> Any:
    """What a method of the session gives."""
    with ending_at_once():
        try:
            return getattr(_session, what)(*arguments)
        except KeyboardInterrupt:  # the kernel's own: this process hears of no Ctrl-C
            os._exit(130)


def shows(script: str) -> bool:
    """Whether a script of `reproduce` that is run here says that something is wrong, or raises."""
    said = io.StringIO()
    with ending_at_once(), redirect_stdout(said):
        try:
            exec(script, {})  # our own text, and the kernel is the user's
        except BaseException:  # the kernel may end the script
            return True
    return any(words in said.getvalue() for words in WRONG)

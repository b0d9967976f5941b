"""From a configuration to the plan of a run, made where the kernels will run."""

from __future__ import annotations

import os

from precision.backends.backend import backends
from precision.backends.own import revision_of
from precision.errors import UsageError
from precision.sweep.config import Config
from precision.sweep.environment import code_version, find_device, observe_environment
from precision.sweep.grid import plan
from precision.sweep.task import Plan, Task

# Taken when the code is imported: of the code that runs, not of what its files say later.
CODE = code_version()


def make_plan(config: Config, device: str) -> Plan:
    """The tasks, the code and the environment of a run.

    Raises UsageError on an unknown name, a kernel that cannot be loaded, a shape that makes no sense or that is
    too large, or a device that is not there.
    """
    place = find_device(device)
    tasks = tuple(plan(config))
    _require_memory(tasks)
    methods = dict.fromkeys(method for task in tasks for method in task.methods)
    revisions = {method: revision_of(backends.build(method)) for method in methods}
    return Plan(tasks, CODE, observe_environment(place), revisions)


def _require_memory(tasks: tuple[Task, ...]) -> None:
    """Refuse a problem whose fp64 inputs alone exceed this machine's memory, before anything is measured."""
    available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for task in tasks:
        needed = 8 * task.problem.shape.input_elements
        if needed > available:
            raise UsageError(
                f"sweep {task.sweep!r}: {task.problem.shape} needs {needed / 2**30:.0f} GiB for its inputs and this "
                f"machine has {available / 2**30:.0f}; make the shape smaller"
            )

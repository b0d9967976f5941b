"""What `precision explain` is asked about: a problem in the words of a configuration, and what of it to tell."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from precision.explain.stage_errors import Against
from precision.inputs.find import OWN_CALLS, family_of
from precision.problem import Problem
from precision.spec import Spec
from precision.sweep.config import Config, Sweep
from precision.sweep.grid import plan as plan_tasks

# Where the inputs bring no shape: little enough for hundreds of runs. The scale 1/sqrt(128) is no power of two, so that
# what is multiplied by it is rounded.
_SHAPE = {"q_heads": 2, "q_len": 64, "kv_len": 128, "d_k": 128}


@dataclass(frozen=True)
class Question:
    """What is asked; a key of the problem that is None is what the inputs bring, or a default."""

    inputs: str = "normal"
    mask: str | None = None
    scale: str | None = None
    q_len: int | None = None
    kv_len: int | None = None
    d_k: int | None = None
    error: Against = "total"
    backward: bool = False

    def command(self, target: str, dtypes: Sequence[str]) -> str:
        """What asks it on the command line."""
        words = ["precision", "explain", target]
        for dtype in dtypes:
            words += ["--dtype", dtype]
        for field in fields(self):
            if (value := getattr(self, field.name)) != field.default:
                words += [f"--{field.name.replace('_', '-')}", *([] if value is True else [str(value)])]
        return shlex.join(words)

    def problems(self, dtypes: Sequence[str]) -> list[Problem]:
        """One for each dtype in which the inputs exist; raises UsageError where the keys do not go together."""
        keys = {name: getattr(self, name) for name in ("mask", "scale", "q_len", "kv_len", "d_k")}
        if family_of(Spec.parse(self.inputs)) not in OWN_CALLS:
            keys |= {name: keys.get(name) or value for name, value in _SHAPE.items()}
        given: dict[str, Any] = {name: [value] for name, value in keys.items() if value is not None}
        sweep = Sweep(name="explain", methods=["eager"], inputs=[self.inputs], dtype=list(dtypes), **given)
        return [task.problem for task in plan_tasks(Config(title="", sweep=[sweep]))]

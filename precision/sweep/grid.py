"""The grid: from a configuration to problems and the methods that solve each of them."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator

from precision.backends.backend import backends
from precision.errors import UsageError
from precision.formats import find_format
from precision.inputs.distribution import distributions
from precision.inputs.find import OWN_CALLS, family_of
from precision.inputs.own_call import Origin
from precision.presets import find_preset
from precision.problem import Problem, Shape
from precision.scores.mask import OwnMask, masks
from precision.scores.scale import canonical_scale, resolve_scale
from precision.spec import Spec
from precision.sweep.config import Config, Sweep
from precision.sweep.task import Task

# Of one sweep. At a millisecond a case these take a quarter of an hour.
_MOST_CASES = 1_000_000


def plan(config: Config) -> list[Task]:
    """All tasks of a configuration; raises UsageError on an unknown name or a shape that makes no sense.

    The dtype varies fastest, so that problems that share their unrounded inputs follow each other.
    """
    for name, count in Counter(sweep.name for sweep in config.sweep).items():
        if count > 1:
            raise UsageError(f"two sweeps are called {name!r}; rename one")
    for sweep in config.sweep:
        _require_size(sweep)
    return [task for sweep in config.sweep for task in _plan_sweep(sweep)]


def _require_size(sweep: Sweep) -> None:
    """Refuse a product that no machine ends, before it is written out. Calls of capture files are counted once."""
    axes = (getattr(sweep, name) for name in Sweep.model_fields)
    cases = math.prod(len(axis) for axis in axes if isinstance(axis, list))
    if cases > _MOST_CASES:
        raise UsageError(
            f"sweep {sweep.name!r} is a product of {cases:,} cases, and the most is {_MOST_CASES:,}; shorten its lists"
        )


def _plan_sweep(sweep: Sweep) -> Iterator[Task]:
    methods = tuple(dict.fromkeys(backends.canonical(method) for method in sweep.methods))
    dtypes = [find_format(name).name for name in sweep.dtype]
    scales = None if sweep.scale is None else [canonical_scale(rule) for rule in sweep.scale]
    mask_names = None if sweep.mask is None else [masks.canonical(mask) for mask in sweep.mask]
    for origin in _origins(sweep, dtypes):
        axes = (origin.seeds, mask_names or [origin.mask], scales or [origin.scale], origin.dtypes)
        for seed, mask, scale, dtype in itertools.product(*axes):
            resolve_scale(scale, origin.shape)
            problem = Problem(origin.shape, dtype, origin.inputs, mask, scale, seed, origin.digest)
            yield Task(sweep.name, problem, methods, sweep.backward, sweep.latency, origin.source)


def _origins(sweep: Sweep, dtypes: list[str]) -> Iterator[Origin]:
    for text in sweep.inputs:
        spec = Spec.parse(text)
        family = family_of(spec)
        _check_masks(sweep, family)
        if family in OWN_CALLS:
            _require_silence(sweep, family)
            yield from OWN_CALLS[family].origins(spec, dtypes)
        else:
            inputs = distributions.canonical(spec)
            for shape in _shapes(sweep):
                yield Origin(inputs, shape, tuple(dtypes), tuple(sweep.seed))


def _check_masks(sweep: Sweep, family: str) -> None:
    for name in sweep.mask or []:
        mask = masks.build(name)
        if isinstance(mask, OwnMask) and mask.inputs != family:
            raise UsageError(f"sweep {sweep.name!r}: the mask {name!r} comes with {mask.inputs} inputs only")


def _require_silence(sweep: Sweep, family: str) -> None:
    """Raise UsageError when the sweep asks for what the inputs themselves fix."""
    for key in OWN_CALLS[family].fixes:
        if getattr(sweep, key) is not None:
            raise UsageError(f"sweep {sweep.name!r} has {family} inputs, which fix {key}; leave it out")


def _shapes(sweep: Sweep) -> Iterator[Shape]:
    if sweep.preset is not None:
        given = [key for key in ("q_heads", "kv_heads", "d_k", "d_v") if getattr(sweep, key) is not None]
        if given:
            raise UsageError(f"sweep {sweep.name!r} has a preset, which fixes {given[0]}; leave one of the two out")
        for preset in sweep.preset:
            heads = find_preset(preset)
            for batch, q_len in itertools.product(sweep.batch or [1], _needed(sweep, "q_len")):
                for kv_len in sweep.kv_len or [q_len]:
                    yield Shape(batch, heads.q_heads, heads.kv_heads, q_len, kv_len, heads.d_k, heads.d_v)
        return
    for batch, q_heads, q_len, d_k in itertools.product(
        sweep.batch or [1], sweep.q_heads or [1], _needed(sweep, "q_len"), _needed(sweep, "d_k")
    ):
        sides = itertools.product(sweep.kv_heads or [q_heads], sweep.kv_len or [q_len], sweep.d_v or [d_k])
        for kv_heads, kv_len, d_v in sides:
            yield Shape(batch, q_heads, kv_heads, q_len, kv_len, d_k, d_v)


def _needed(sweep: Sweep, key: str) -> list[int]:
    values: list[int] | None = getattr(sweep, key)
    if values is None:
        raise UsageError(f"sweep {sweep.name!r} needs {key} (or only inputs that bring their own, as captured)")
    return values

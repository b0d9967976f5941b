"""The grid: from a configuration to problems and the methods that solve each of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from precision.backends.backend import backends
from precision.errors import UsageError
from precision.formats import find_format
from precision.inputs import capture_file
from precision.inputs.capture_header import CapturedCall
from precision.inputs.distribution import distributions
from precision.presets import find_preset
from precision.problem import Problem, Shape
from precision.scores.mask import masks
from precision.scores.scale import canonical_scale, resolve_scale
from precision.spec import Spec
from precision.sweep.config import Config, Sweep

_SHAPE_KEYS = ("batch", "q_heads", "kv_heads", "q_len", "kv_len", "d_k", "d_v")


@dataclass(frozen=True)
class Task:
    """One problem with all its methods: inputs and references are made once for it."""

    sweep: str
    problem: Problem
    methods: tuple[str, ...]
    backward: bool
    latency: bool
    source: str = ""  # for captured inputs, the module that made the call


@dataclass(frozen=True)
class _Origin:
    """Inputs with their shape, and for captured ones what the call itself says."""

    inputs: str
    shape: Shape
    digest: str = ""
    call: CapturedCall | None = None


def plan(config: Config) -> list[Task]:
    """All tasks of a configuration; raises UsageError on an unknown name or a shape that makes no sense.

    The dtype varies fastest, so that problems that share their unrounded inputs follow each other.
    """
    names = [sweep.name for sweep in config.sweep]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"two sweeps are called {name!r}; rename one")
    return [task for sweep in config.sweep for task in _plan_sweep(sweep)]


def _plan_sweep(sweep: Sweep) -> Iterator[Task]:
    methods = tuple(dict.fromkeys(backends.canonical(method) for method in sweep.methods))
    dtypes = [find_format(name).name for name in sweep.dtype]
    scales = None if sweep.scale is None else [canonical_scale(rule) for rule in sweep.scale]
    mask_names = None if sweep.mask is None else [masks.canonical(mask) for mask in sweep.mask]
    for origin in _origins(sweep):
        _check_masks(sweep, origin, mask_names)
        axes = (
            sweep.seed if origin.call is None else [0],
            mask_names or [_default_mask(origin.call)],
            scales or [_default_scale(origin.call)],
            dtypes,
        )
        for seed, mask, scale, dtype in itertools.product(*axes):
            resolve_scale(scale, origin.shape)
            problem = Problem(origin.shape, dtype, origin.inputs, mask, scale, seed, origin.digest)
            yield Task(
                sweep.name, problem, methods, sweep.backward, sweep.latency, origin.call.name if origin.call else ""
            )


def _origins(sweep: Sweep) -> Iterator[_Origin]:
    for text in sweep.inputs:
        spec = Spec.parse(text)
        if spec.name == "captured":
            yield from _captured(sweep, spec)
        else:
            inputs = distributions.canonical(spec)
            yield from (_Origin(inputs, shape) for shape in _shapes(sweep))


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
        raise UsageError(f"sweep {sweep.name!r} needs {key} (or only captured inputs)")
    return values


def _captured(sweep: Sweep, spec: Spec) -> Iterator[_Origin]:
    """The call that a spec names, or every call of the file when it names none."""
    given = [key for key in (*_SHAPE_KEYS, "preset") if getattr(sweep, key) is not None]
    if given:
        raise UsageError(f"sweep {sweep.name!r} has captured inputs, which fix {given[0]}; leave it out")
    options = dict(spec.options)
    header = capture_file.read_header(capture_file.resolve(options.get("file", "minilm")))
    wanted = [options["call"]] if "call" in options else [str(index) for index in range(len(header.calls))]
    for index in wanted:
        inputs = distributions.canonical(Spec(spec.name, tuple(sorted({**options, "call": index}.items()))))
        if int(index) >= len(header.calls):
            raise UsageError(f"{inputs}: the capture holds calls 0 to {len(header.calls) - 1}")
        call = header.calls[int(index)]
        yield _Origin(inputs, call.shape, header.digest, call)


def _check_masks(sweep: Sweep, origin: _Origin, mask_names: list[str] | None) -> None:
    if origin.call is None and mask_names and "captured" in mask_names:
        raise UsageError(f"sweep {sweep.name!r}: the mask 'captured' comes with captured inputs only")


def _default_mask(call: CapturedCall | None) -> str:
    if call is None or (call.mask == "none" and not call.is_causal):
        return "none"
    return "captured"


def _default_scale(call: CapturedCall | None) -> str | float:
    return "sqrt_dk" if call is None or call.scale is None else call.scale

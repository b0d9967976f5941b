"""torch's global state: a kernel must leave it as it found it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

# One that a kernel which seeds the generator does not use.
_UNUSUAL_SEED = 917_263_541


def _flushes_denormals() -> bool:
    smallest_normal = torch.finfo(torch.float32).tiny
    return bool((torch.full((1,), smallest_normal, dtype=torch.float32) / 2 == 0).item())


def _set_reduction(name: str, allowed: Any) -> None:
    setattr(torch.backends.cuda.matmul, name, allowed)


def _reduction(name: str) -> tuple[Callable[[], Any], Callable[[Any], object]]:
    """A switch of how matrix products on a GPU add up."""
    return partial(getattr, torch.backends.cuda.matmul, name), partial(_set_reduction, name)


_SETTINGS: dict[str, tuple[Callable[[], Any], Callable[[Any], object]]] = {
    "default dtype": (torch.get_default_dtype, torch.set_default_dtype),
    "gradient mode": (torch.is_grad_enabled, torch.set_grad_enabled),
    "number of threads": (torch.get_num_threads, torch.set_num_threads),
    "float32 matmul precision": (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    "deterministic mode": (torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms),
    "flushing of denormals": (_flushes_denormals, torch.set_flush_denormal),
    "reduced precision of SDPA's math": (
        torch.backends.cuda.fp16_bf16_reduction_math_sdp_allowed,
        torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp,
    ),
    "reduced precision of fp16 products": _reduction("allow_fp16_reduced_precision_reduction"),
    "reduced precision of bf16 products": _reduction("allow_bf16_reduced_precision_reduction"),
}


@contextmanager
def watch_torch_state() -> Iterator[Callable[[], list[str]]]:
    """A context that yields a function which names what has changed since; everything is put back at its end."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(_UNUSUAL_SEED)
        random_state = torch.random.get_rng_state()
        before = {name: get() for name, (get, _) in _SETTINGS.items()}

        def changed() -> list[str]:
            names = [name for name, (get, _) in _SETTINGS.items() if get() != before[name]]
            return names if torch.equal(torch.random.get_rng_state(), random_state) else [*names, "random state"]

        try:
            yield changed
        finally:
            for name, (get, put) in _SETTINGS.items():
                if get() != before[name]:  # to set one may import torch's compiler, which takes a second
                    put(before[name])

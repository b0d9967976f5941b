"""The environment of a run: everything outside of the code that may change a number or a latency."""

from __future__ import annotations

import hashlib
import os
import platform
from pathlib import Path
from typing import Any

import numpy
import torch

import precision
from precision.errors import UsageError


def find_device(name: str) -> torch.device:
    """The device of that name; `auto` is CUDA where there is one. Raises UsageError when it is not there."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name == "cuda" and not torch.cuda.is_available():
        raise UsageError("there is no CUDA device here (torch.cuda.is_available() is False); use --device cpu or auto")
    if name not in ("cpu", "cuda"):
        raise UsageError(f"unknown device {name!r}; known: auto, cpu, cuda")
    return torch.device(name)


def observe_environment(device: torch.device) -> dict[str, Any]:
    """Versions, hardware, threads and the flags that change results, as plain values."""
    environment: dict[str, Any] = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "platform": f"{platform.system()} {platform.machine()}",
        "device": device.type,
        "cpu": _cpu_model(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
        "fp16_bf16_reduction_math_sdp": torch.backends.cuda.fp16_bf16_reduction_math_sdp_allowed(),  # type: ignore[no-untyped-call]
        "deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
    }
    if device.type == "cuda":
        matmul = torch.backends.cuda.matmul
        environment |= {
            "gpu": torch.cuda.get_device_name(device),
            "gpu_capability": ".".join(str(part) for part in torch.cuda.get_device_capability(device)),
            "cuda": torch.version.cuda,
            "cudnn": torch.backends.cudnn.version(),  # type: ignore[no-untyped-call]
            "driver": _driver_version(),
            "allow_tf32": matmul.allow_tf32,
            "allow_fp16_reduced_precision_reduction": matmul.allow_fp16_reduced_precision_reduction,
            "allow_bf16_reduced_precision_reduction": matmul.allow_bf16_reduced_precision_reduction,
        }
    return environment


def code_version() -> str:
    """The package's version and a digest of the sources on which a number in a row can depend."""
    root = Path(precision.__file__).parent
    digest = hashlib.sha256()
    for folder in ("inputs", "scores", "numerics", "backends", "sweep"):
        for path in sorted((root / folder).rglob("*.py")):
            digest.update(path.read_bytes())
    return f"{precision.__version__}+{digest.hexdigest()[:12]}"


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown"
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")


def _driver_version() -> str:
    try:
        return Path("/proc/driver/nvidia/version").read_text().split("  ")[1].strip()
    except (OSError, IndexError):
        return "unknown"

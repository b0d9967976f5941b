"""The environment of a run: everything outside of the code that may change a number or a latency."""

from __future__ import annotations

import hashlib
import os
import platform
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy
import torch

import precision
from precision.errors import UsageError

# The distributions behind the backends that torch does not bring.
_OPTIONAL_LIBRARIES = (
    "flash-attn", "flash-attn-3", "flashinfer-python", "jax", "jaxlib", "onnx", "onnxruntime", "sageattention",
    "triton", "xformers",
)  # fmt: skip


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
        "torch": str(torch.__version__),  # plain text, which can be read without torch
        "numpy": numpy.__version__,
        "platform": f"{platform.system()} {platform.machine()}",
        "device": device.type,
        "libraries": _library_versions(),
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
    """The package's version and a digest of all its sources.

    All, for a list of those on which a number can depend would one day miss one, and an old row would pass for new.
    """
    digest = hashlib.sha256()
    for path in sorted(Path(precision.__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return f"{precision.__version__}+{digest.hexdigest()[:12]}"


def _library_versions() -> dict[str, str]:
    """Versions of what optional backends run, where it is installed."""
    versions = {}
    for name in _OPTIONAL_LIBRARIES:
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    return versions


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

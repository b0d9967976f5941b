"""Clocks and temperature of an NVIDIA GPU, when nvidia-ml-py can be imported."""

from __future__ import annotations

from dataclasses import dataclass

import torch

_HOT = 0.03  # a clock that falls by more than this changes latencies as much


@dataclass(frozen=True)
class GpuState:
    """What the driver says at one moment."""

    sm_clock: int  # MHz
    memory_clock: int  # MHz
    temperature: int  # degrees Celsius


def read_gpu_state(device: torch.device) -> GpuState | None:
    """The state of a CUDA device; None for a CPU, and where nvidia-ml-py or the driver's library is missing."""
    if device.type != "cuda":
        return None
    try:
        import pynvml  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    try:
        # By UUID, since CUDA_VISIBLE_DEVICES renumbers torch's devices and not the driver's.
        handle = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{torch.cuda.get_device_properties(device).uuid}")
        return GpuState(
            sm_clock=pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM),
            memory_clock=pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_MEM),
            temperature=pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU),
        )
    except pynvml.NVMLError:
        return None
    finally:
        pynvml.nvmlShutdown()


def warn_of_clocks(before: GpuState | None, after: GpuState | None) -> list[str]:
    """The clocks moved while latencies were sampled."""
    if before is None or after is None or after.sm_clock >= (1 - _HOT) * before.sm_clock:
        return []
    return [
        f"the GPU's clock fell from {before.sm_clock} to {after.sm_clock} MHz (now {after.temperature} °C); "
        "warm it up first, or fix the clock with nvidia-smi -lgc"
    ]

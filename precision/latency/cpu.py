"""Who used the CPU while latencies were sampled, and whether torch's threads have cores to run on."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

import torch

_STAT = Path("/proc/stat")
_SPARE = 0.1  # of a core: what a system does even when nobody asks it to


@dataclass(frozen=True)
class CpuUse:
    """Clocks at one moment, in seconds: the wall's, all processors' busy time, and this process's part of it."""

    wall: float
    busy: float
    own: float


def read_cpu_use() -> CpuUse | None:
    """The clocks now; None on systems without Linux's /proc/stat."""
    try:
        fields = [int(field) for field in _STAT.read_text().splitlines()[0].split()[1:9]]
    except OSError:
        return None
    _, _, _, idle, io_wait, *_ = fields  # proc(5): user nice system idle iowait irq softirq steal
    busy = (sum(fields) - idle - io_wait) / os.sysconf("SC_CLK_TCK")
    return CpuUse(time.perf_counter(), busy, time.process_time())


def warn_of_others(before: CpuUse | None, after: CpuUse | None) -> list[str]:
    """Other programs used cores that torch's threads needed."""
    if before is None or after is None or after.wall <= before.wall:
        return []
    others = ((after.busy - before.busy) - (after.own - before.own)) / (after.wall - before.wall)
    cores, threads = os.cpu_count() or 1, torch.get_num_threads()
    if others <= max(cores - threads, 0) + _SPARE:
        return []
    return [
        f"other programs kept {others:.1f} of {cores} cores busy while torch ran {threads} threads; "
        "wait for them, or set OMP_NUM_THREADS lower"
    ]


def warn_of_threads() -> list[str]:
    """torch has more threads than this process has cores."""
    threads, cores = torch.get_num_threads(), len(os.sched_getaffinity(0))
    if threads <= cores:
        return []
    return [f"torch uses {threads} threads and this process may run on {cores} cores; set OMP_NUM_THREADS={cores}"]

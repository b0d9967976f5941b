"""The sections of a report, one file each, in the order in which they are read."""

from __future__ import annotations

from collections.abc import Callable

from precision.report.blocks import Section
from precision.report.sections import (
    ablation,
    backends,
    captured,
    columns,
    condition,
    environment,
    gradients,
    head_width,
    holes,
    latency,
    logit_size,
    ran,
    underflow,
    worst,
    zoo,
)
from precision.report.source import Source

MAKERS: tuple[Callable[[Source], Section | None], ...] = (
    zoo.make_section,
    backends.make_section,
    ablation.make_section,
    head_width.make_section,
    logit_size.make_section,
    condition.make_section,
    underflow.make_section,
    captured.make_section,
    latency.make_section,
    gradients.make_section,
    ran.make_section,
    worst.make_section,
    holes.make_section,
    environment.make_section,
    columns.make_section,
)

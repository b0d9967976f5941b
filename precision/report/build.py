"""From a run to the context of its pages."""

from __future__ import annotations

from precision.report.blocks import Report
from precision.report.sections import MAKERS
from precision.report.show import plural, seconds
from precision.report.source import Source
from precision.report.verdict import judge


def build_report(source: Source) -> Report:
    """Everything both pages show, computed once."""
    sections = [section for make in MAKERS if (section := make(source))]
    return Report(
        title=source.record.title,
        facts=_facts(source),
        verdict=judge(source.rows),
        command=source.command,
        sections=tuple(sections),
    )


def _facts(source: Source) -> tuple[str, ...]:
    """What ran, on what, when and for how long."""
    record, frame = source.record, source.frame
    environment = record.environment
    machine = environment.get("gpu") or environment.get("cpu")
    facts = [plural(len(frame), "case"), f"torch {environment.get('torch', 'unknown')}"]
    if machine:
        facts.append(f"{machine}, {environment.get('threads', '?')} threads")
    facts.append(record.started[:10])
    if "wall" in record.seconds:
        facts.append(seconds(record.seconds["wall"]))
    return (*facts, *(() if record.finished else ("not finished",)))

"""From a run to the context of its pages."""

from __future__ import annotations

from precision.report.blocks import Report
from precision.report.limits import shortened
from precision.report.rows import require_sound
from precision.report.sections import MAKERS
from precision.report.sections.zoo import summarise
from precision.report.show import plural, seconds
from precision.report.source import Source
from precision.report.verdict import judge
from precision.zoo.marks import marks


def build_report(source: Source) -> Report:
    """Everything both pages show, computed once; raises UsageError when a row lacks what every row has."""
    require_sound(source.frame)
    sections = [shortened(section) for make in MAKERS if (section := make(source))]
    return Report(
        title=source.record.title,
        facts=_facts(source),
        verdict=_verdict(source),
        command=source.command,
        sections=tuple(sections),
    )


def _verdict(source: Source) -> tuple[str, ...]:
    """The zoo's outcome first; the rest only where there are rows of something else, or of nothing at all."""
    zoo = summarise(marks(source.frame))
    return zoo if zoo and source.rows.empty else (*zoo, *judge(source.rows))


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

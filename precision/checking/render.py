"""A result on a terminal."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.syntax import Syntax
from rich.text import Text

from precision.checking.result import CheckResult, Outcome, Verdict

_STYLES = {Verdict.PASS: "bold green", Verdict.PASS_WITH_LIMITS: "bold yellow", Verdict.FAIL: "bold red"}


def render(result: CheckResult) -> RenderableType:
    """The verdict, why, the limits, and the reproduction; print it with a rich console."""
    parts: list[RenderableType] = [
        Text.assemble((result.verdict.value.upper(), _STYLES[result.verdict]), f"  {result.kernel}"),
        Text(summary(result), style="dim"),
    ]
    for title, sentences in (("Why", result.reasons), ("Limits", result.limits)):
        if sentences:
            parts.append(Text(f"\n{title}", style="bold"))
            parts += [Padding(Text(f"- {sentence}"), (0, 0, 0, 2)) for sentence in sentences]
    if result.reproduction:
        parts.append(Text("\nThe smallest failing input", style="bold"))
        parts.append(Syntax(result.reproduction, "python", background_color="default", word_wrap=True))
    return Group(*parts)


def summary(result: CheckResult) -> str:
    """How much was looked at."""
    problems = len({row.problem for row in result.rows})
    dtypes = ", ".join(dict.fromkeys(row.dtype for row in result.rows))
    failed = sum(row.outcome is Outcome.FAIL for row in result.rows)
    return f"{len(result.rows)} tensors of {problems} problems in {dtypes}: {failed} wrong; {result.seconds:.1f} s"

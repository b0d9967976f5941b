"""A result on a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.syntax import Syntax
from rich.text import Text

from precision.checking.result import CheckResult, Outcome, Verdict

_STYLES = {Verdict.PASS: "bold green", Verdict.PASS_WITH_LIMITS: "bold yellow", Verdict.FAIL: "bold red"}


def render(result: CheckResult, console: Console) -> None:
    """Print the verdict, why, the limits, and the reproduction. No line is broken: it may be a script, or in a log."""
    verdict = Text.assemble((result.verdict.value.upper(), _STYLES[result.verdict]), f"  {result.kernel}")
    lines = [verdict, Text(summary(result), style="dim")]
    for title, sentences in (("Why", result.reasons), ("Limits", result.limits)):
        if sentences:
            lines += [Text(f"\n{title}", style="bold"), *(Text(f"  - {sentence}") for sentence in sentences)]
    if result.reproduction:
        lines.append(Text("\nThe smallest failing input", style="bold"))
        script = Syntax("", "python", background_color="default").highlight(result.reproduction)
        script.rstrip()
        lines.append(script)
    for line in lines:
        console.print(line, soft_wrap=True)


def summary(result: CheckResult) -> str:
    """How much was looked at."""
    problems = len({row.problem for row in result.rows})
    dtypes = ", ".join(dict.fromkeys(row.dtype for row in result.rows))
    failed = sum(row.outcome is Outcome.FAIL for row in result.rows)
    return f"{len(result.rows)} tensors of {problems} problems in {dtypes}: {failed} wrong; {result.seconds:.1f} s"

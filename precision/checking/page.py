"""A result as a page: check.md in a folder, and the rows beside it."""

from __future__ import annotations

from pathlib import Path

import jinja2
import pandas as pd

from precision.checking.problems import PROBLEMS
from precision.checking.render import summary
from precision.checking.result import CheckResult, Outcome
from precision.markdown import code_span, escape
from precision.report.folder import write_files

_SHOWN = ["dtype", "problem", "tensor", "outcome", "max_abs", "max_allowed", "rms", "rms_allowed", "bias_ulp", "note"]
_PAGE = """\
# {{ result.verdict.value }}: {{ result.kernel | code }}

{{ summary | text }}

{% for title, sentences in sections if sentences %}
## {{ title }}

{% for sentence in sentences %}
- {{ sentence | text }}
{% endfor %}

{% endfor %}
{% if result.reproduction %}
## The smallest failing input

```python
{{ result.reproduction }}```

{% endif %}
## Every problem

The error of a tensor is the largest distance from fp64 attention of the same inputs, absolute; allowed is what the rule
gives for that element. The bias is the mean signed error in units in the last place.

{{ rows }}

## What the problems show

{{ problems }}
"""


def write_page(result: CheckResult, out: Path) -> Path:
    """Write check.md and rows.csv into the folder, which is made when it is not there; returns the page.

    Raises UsageError as `write_files` does.
    """
    write_files(out, {"check.md": _page(result), "rows.csv": result.frame.to_csv(index=False)})
    return out / "check.md"


def _page(result: CheckResult) -> str:
    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    environment.filters |= {"text": escape, "code": code_span}
    return environment.from_string(_PAGE).render(
        result=result,
        summary=summary(result),
        sections=[("Why", result.reasons), ("Limits", result.limits)],
        rows=_table(result),
        problems=_problems(),
    )


def _table(result: CheckResult) -> str:
    """Failures first, then limits and refusals, then the rest."""
    order = {Outcome.FAIL: 0, Outcome.LIMIT: 1, Outcome.REFUSED: 2, Outcome.OK: 3}
    frame = result.frame.assign(order=[order[row.outcome] for row in result.rows]).sort_values("order", kind="stable")
    return str(frame[_SHOWN].map(_cell).to_markdown(index=False))


def _problems() -> str:
    frame = pd.DataFrame([(p.name, p.purpose, str(p.shape)) for p in PROBLEMS], columns=["problem", "shows", "shape"])
    return str(frame.map(_cell).to_markdown(index=False))


def _cell(value: object) -> str:
    if value is None or value != value:
        return ""
    return f"{value:.3g}" if isinstance(value, float) else escape(str(value))

"""Text that is safe inside Markdown, tables included."""

from __future__ import annotations

import re

# An underscore within a word starts nothing, and names of columns have many.
_SPECIAL = re.compile(r"([\\`*|<>\[\]&~]|(?<!\w)_|_(?!\w))")
_LINE_BREAK = re.compile(r"\s*[\r\n]+\s*")


def escape(text: str) -> str:
    """Plain text: nothing in it starts code, emphasis, a link, HTML, a table cell or a new line."""
    return _SPECIAL.sub(r"\\\1", _LINE_BREAK.sub(" ", text))


def code_span(text: str) -> str:
    """Code inside a table cell: a fence longer than any run of backticks; a pipe needs a backslash even there."""
    text = _LINE_BREAK.sub(" ", text)
    runs = [len(run) for run in re.findall("`+", text)]
    fence = "`" * (max(runs, default=0) + 1)
    padding = " " if runs else ""
    return f"{fence}{padding}{text.replace('|', chr(92) + '|')}{padding}{fence}"

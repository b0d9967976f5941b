"""Where text in a narrow column breaks, so that no figure does."""

from __future__ import annotations

import re
from collections.abc import Iterable

from rich.cells import cell_len

# After a space, but not between the ends of an interval or before ×; names and specs that are too long for their column
# within, but numbers never.
_SPACE, _WITHIN = re.compile(r"(?<= )(?!×|[\d.]+\])"), re.compile(r"(?<=[\[,_./:])(?=[A-Za-z])")


def wrap(text: str, width: int) -> str:
    """The text in lines of this width, or of the longest piece where that is wider."""
    lines = []
    for paragraph in text.split("\n"):
        line = ""
        for piece in _pieces(paragraph, width):
            if line and longest([line + piece]) > width:
                lines.append(line.rstrip(" "))
                line = ""
            line += piece
        lines.append(line.rstrip(" "))
    return "\n".join(lines)


def longest(texts: Iterable[str]) -> int:
    """The width of the longest line."""
    return max((cell_len(line.rstrip(" ")) for text in texts for line in text.split("\n")), default=0)


def longest_piece(texts: Iterable[str]) -> int:
    """The width of the longest part that does not break."""
    return longest(piece for text in texts for piece in _pieces(text, 0))


def _pieces(text: str, width: int) -> list[str]:
    """Words, those that are longer than the width in their parts."""
    words = _SPACE.split(text)
    return [piece for word in words for piece in (_WITHIN.split(word) if longest([word]) > width else [word])]

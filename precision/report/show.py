"""How values are shown. The one place where a number becomes text, for both pages and for the axes of figures."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Literal, get_args

Show = Literal["text", "code", "number", "percent", "count", "seconds", "bytes", "ratio"]

MISSING = "–"
_MOST_LISTED = 20
_GAP = "\N{NO-BREAK SPACE}"  # a number and its unit stay on one line


def is_missing(value: object) -> bool:
    """Whether a cell holds nothing: None or NaN (pandas' NA became one of them on the way)."""
    return value is None or (isinstance(value, float) and math.isnan(value))


def number(value: float) -> str:
    """Three significant digits, with an exponent beyond 0.001 and 100 000: 0.251, 4.8e-4."""
    if value == 0 or 1e-3 <= abs(value) < 1e5:
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    mantissa, exponent = f"{value:.2e}".split("e")
    return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"


def percent(share: float) -> str:
    """A share as a percentage; only none is 0 % and only all is 100 %."""
    if share in (0, 1):
        return f"{100 * share:.0f}{_GAP}%"
    if share < 0.001:
        return f"<{_GAP}0.1{_GAP}%"
    if share > 0.999:
        return f">{_GAP}99.9{_GAP}%"
    return f"{100 * share:.1f}{_GAP}%" if share < 0.1 or share > 0.99 else f"{100 * share:.0f}{_GAP}%"


def count(value: float) -> str:
    """A whole number, grouped in threes."""
    return f"{int(value):,}"


def seconds(value: float) -> str:
    """Seconds in the unit that fits: 12.3 ms."""
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if value * factor >= 1:
            return f"{value * factor:.3g}{_GAP}{unit}"
    return f"{value * 1e9:.3g}{_GAP}ns"


def bytes_(value: float) -> str:
    """Bytes in binary units: 33.6 MiB."""
    for unit, power in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if value >= 2**power:
            return f"{value / 2**power:.1f}{_GAP}{unit}"
    return f"{int(value)}{_GAP}B"


def ratio(value: float) -> str:
    """A factor: 1.6 ×."""
    return f"{_factor(value)}{_GAP}×"


def factor_span(factors: Iterable[float]) -> str:
    """The range of some factors: `15 to 72 ×`."""
    return f"{span(list(factors), _factor)}{_GAP}×"


def _factor(value: float) -> str:
    return number(float(f"{value:.2g}"))


def span(values: list[float], show: Callable[[float], str] = number) -> str:
    """The range of some values, or the value when they are shown alike: `1.6 to 4.1`."""
    low, high = show(min(values)), show(max(values))
    return low if low == high else f"{low} to {high}"


def listed(words: list[str]) -> str:
    """Words as a sentence lists them: `a, b and c`; of a great many the first, and how many more."""
    if len(words) > _MOST_LISTED:
        words = [*words[: _MOST_LISTED - 1], f"{count(len(words) - _MOST_LISTED + 1)} more"]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def distinct(words: Iterable[str]) -> str:
    """The distinct words as a sentence lists them, in the order in which they come."""
    return listed(list(dict.fromkeys(words)))


def plural(how_many: int, noun: str) -> str:
    """`1 row`, `2 rows`."""
    return f"{count(how_many)} {noun}{'' if how_many == 1 else 's'}"


FILTERS: dict[str, Callable[..., str]] = {
    "text": str,
    "code": str,
    "number": number,
    "percent": percent,
    "count": count,
    "seconds": seconds,
    "bytes": bytes_,
    "ratio": ratio,
}
assert set(FILTERS) == set(get_args(Show))


def show(value: object, how: Show) -> str:
    """A cell as text; a missing one as a dash."""
    return MISSING if is_missing(value) else FILTERS[how](value)

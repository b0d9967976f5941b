"""A failure: where a value first stopped being a number of its format, and how far that went."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

Kind = Literal["input", "overflow", "saturated", "invalid", "underflow", "lost", "masked row"]

# What happened, before the name of the stage.
_WORDS: dict[Kind, str] = {
    "input": "Not finite as given, at",
    "overflow": "Overflow at",
    "saturated": "Cut to the largest number at",
    "invalid": "NaN made at",
    "underflow": "Rounded to 0 at",
    "lost": "Not finite as given, and the output is, at",
    "masked row": "Not 0 for a row that sees no key, at",
}
RESULTS = ("out", "dq", "dk", "dv")  # stages that the user sees


@dataclass(frozen=True)
class Place:
    """One value that failed; j of (b, h, i, j) is a key, a feature or a tile, as the stage has it."""

    index: tuple[int, ...]
    value: float  # before it was rounded
    became: float


@dataclass(frozen=True)
class Reach:
    """How far a failure went at a later stage: elements that are NaN or infinite, and their rows."""

    stage: str
    elements: int
    rows: int


@dataclass(frozen=True)
class Failure:
    """All values of one stage that failed in one way; what is said of one value is said of the first."""

    stage: str
    kind: Kind
    places: tuple[Place, ...]  # in the order of the run, the first thousand
    limit: float | None  # magnitude from which values become infinite (or are cut), or up to which they become 0
    elements: int  # that failed
    rows: int  # that hold one of them
    spread: tuple[Reach, ...]  # at results and later stages, in the rows that failed here first
    weight: float | None = None  # of weights that became 0: their share of a row's sum, worst row
    wrong: int = 0  # of the rows, those whose output is finite and off by more than rounding weights and output may do
    inferred: bool = False  # from exact scores and the output, for a kernel whose stages are not seen

    @property
    def first(self) -> Place:
        """Where it began."""
        return self.places[0]

    def __str__(self) -> str:
        """`s: 72135 -> inf, limit 65520, at (0, 2, 17, 33)`."""
        value, became = _show(self.first.value), _show(self.first.became)
        limit = "" if self.limit is None else f", limit {_show(self.limit)},"
        index = ", ".join(map(str, self.first.index))
        lost = ", lost" if self.kind == "lost" else ""
        return f"{self.stage}: {value if value == became else f'{value} -> {became}'}{limit} at ({index}){lost}"

    @property
    def sentence(self) -> str:
        """What happened, where, how often, and what the results show of it."""
        counts = f"{_plural(self.elements, 'value')} in {_plural(self.rows, 'row')}"
        weight = "" if self.weight is None else f", up to {self.weight:.3g} of the weight of a row"
        inferred = "Inferred. " if self.inferred else ""
        return f"{inferred}{_WORDS[self.kind]} {self}; {counts}{weight}. {self._consequence}".strip()

    def to_json(self) -> dict[str, Any]:
        """Everything as plain values; a number that is not finite as its name."""
        places = [
            {"index": place.index, "value": _plain(place.value), "became": _plain(place.became)}
            for place in self.places
        ]
        return {**asdict(self), "places": places, "sentence": self.sentence}

    @property
    def is_shown(self) -> bool:
        """Whether an output or a gradient is NaN, infinite or known to be wrong because of it."""
        return bool(self.wrong) or self.kind in ("lost", "masked row") or bool(self._shown)

    @property
    def _shown(self) -> list[Reach]:
        return [reach for reach in self.spread if reach.stage in RESULTS]

    @property
    def _consequence(self) -> str:
        shown = [f"{r.stage} {_plural(r.elements, 'element')} in {_plural(r.rows, 'row')}" for r in self._shown]
        said = [f"NaN or infinite: {', '.join(shown)}"] if shown else []
        if self.wrong:
            said.append(f"Finite and wrong: out in {_plural(self.wrong, 'row')}")
        if not said and self.kind not in ("lost", "masked row"):
            said = ["The output is right in these rows" if self.inferred else "No result is NaN or infinite for it"]
        return "".join(f"{each}. " for each in said).strip()


def _plain(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)


def _show(value: float) -> str:
    return f"{value:.6g}"


def _plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"

"""How much an experiment measures, and from which files."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Effort:
    """How much to measure, and what the user may bring.

    `capture` is a capture file (a path, or one that ships) for experiments on real tensors; `vectors` a file of logits,
    one vector a line, for the experiment that takes one, and drawn ones when it is empty.
    """

    quick: bool = False
    capture: str = "minilm"
    vectors: str = ""

    @property
    def seeds(self) -> range:
        """The replicates; every interval is over these."""
        return range(3 if self.quick else 5)

    def size(self, full: int, quick: int) -> int:
        """One number or the other."""
        return quick if self.quick else full

"""A name with options, as it stands in a configuration: `large[std=10]`, `eager[max_subtraction=false]`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from precision.errors import UsageError

_SPEC = re.compile(r"(?P<name>[\w./-]+)(?:\[(?P<options>[^\[\]]*)\])?")


@dataclass(frozen=True)
class Spec:
    """The name of a registered thing and its options, each still as text."""

    name: str
    options: tuple[tuple[str, str], ...] = ()

    @classmethod
    def parse(cls, text: str) -> Spec:
        """Read `name` or `name[key=value,key=value]`; raises UsageError on anything else."""
        match = _SPEC.fullmatch(text.strip())
        if match is None:
            raise UsageError(f"{text!r} is not of the form name or name[option=value,...]")
        options: dict[str, str] = {}
        for part in filter(None, (match["options"] or "").split(",")):
            key, equals, value = (piece.strip() for piece in part.partition("="))
            if not (key and equals and value):
                raise UsageError(f"{part!r} in {text!r} is not of the form option=value")
            if key in options:
                raise UsageError(f"{text!r} gives the option {key!r} twice")
            options[key] = value
        return cls(match["name"], tuple(sorted(options.items())))

    def __str__(self) -> str:
        if not self.options:
            return self.name
        return f"{self.name}[{','.join(f'{key}={value}' for key, value in self.options)}]"

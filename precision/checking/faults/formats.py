"""The formats that a stage may have been rounded to by mistake."""

from __future__ import annotations

from precision.formats import FORMATS, Format


def narrower_formats(format: Format) -> list[str]:
    """The names of those with fewer significant bits than `format`."""
    return [
        name for name, other in FORMATS.items() if other.significand_bits < format.significand_bits and name != "fp32"
    ]


def spoken(narrow: str, format: Format) -> str:
    """What a rounding to `narrow` may be in a kernel of `format`.

    TF32 has the significand of fp16, and tensors are rarely beyond the range of fp16.
    """
    return "fp16 or TF32" if (narrow, format.name) == ("fp16", "fp32") else narrow

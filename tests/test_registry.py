"""Specs and registries: what a configuration may name, and what it is told when it names something else."""

from dataclasses import dataclass
from typing import Annotated, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from precision.backends.backend import backends
from precision.errors import UsageError, nearest
from precision.inputs.distribution import distributions
from precision.registry import Registry, describe
from precision.scores.mask import masks
from precision.scores.scale import scale_rules
from precision.spec import Spec
from precision.zoo.case import zoo

WORDS = st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True)


@pytest.fixture
def shapes() -> Registry[object]:
    registry: Registry[object] = Registry("shape", __name__)

    @registry.register("square")
    @dataclass(frozen=True)
    class Square:
        """A square. More words."""

        side: Annotated[float, Field(gt=0)] = 1.0
        filled: bool = False
        style: Literal["solid", "dotted"] = "solid"

    @registry.register("polygon")
    @dataclass(frozen=True)
    class Polygon:
        corners: int
        side: float = 1.0

    return registry


@given(WORDS, st.dictionaries(WORDS, st.from_regex(r"[a-z0-9./_-]{1,8}", fullmatch=True), max_size=4))
def test_a_spec_survives_being_written_and_read(name: str, options: dict[str, str]) -> None:
    spec = Spec(name, tuple(sorted(options.items())))
    assert Spec.parse(str(spec)) == spec


@pytest.mark.parametrize("text", ["", "a b", "a[", "a[x]", "a[x=]", "a[=1]", "a[x=1]]", "[x=1]", "a[x=1", "a[x=1,x=2]"])
def test_a_malformed_spec_is_refused_in_one_sentence(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        Spec.parse(text)
    assert "\n" not in str(caught.value)


def test_options_are_typed_and_defaults_left_out(shapes: Registry[object]) -> None:
    assert shapes.canonical("square[side=1,filled=false]") == "square"
    assert shapes.canonical("square[style=dotted, side=2]") == "square[side=2.0,style=dotted]"
    assert shapes.canonical("square[filled=TRUE]") == "square[filled=true]"
    assert shapes.canonical("polygon[corners=3]") == "polygon[corners=3]"


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("sqare", ["unknown shape", "'square'"]),
        ("square[size=2]", ["no option 'size'", "'side'"]),
        ("square[side=0]", ["option side", "greater than 0"]),
        ("square[side=wide]", ["option side", "valid number"]),
        ("square[style=wavy]", ["option style", "'solid' or 'dotted'"]),
        ("square[filled=perhaps]", ["option filled", "boolean"]),
        ("polygon", ["option corners", "required"]),
    ],
)
def test_a_wrong_spec_says_what_would_be_right(shapes: Registry[object], spec: str, words: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        shapes.build(spec)
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_two_things_of_one_name_raise(shapes: Registry[object]) -> None:
    with pytest.raises(ValueError, match="two shapes are called 'square'"):
        shapes.register("square")(object)


def test_a_description_gives_options_and_the_first_line(shapes: Registry[object]) -> None:
    polygon, square = describe(shapes)
    assert (square.name, square.meaning) == ("square", "A square. More words.")
    assert square.options == "side=1.0, filled=false, style=solid"
    assert polygon.options == "corners, side=1.0"


@pytest.mark.parametrize(
    "registry", [backends, distributions, masks, scale_rules, zoo], ids=lambda registry: registry.kind
)
def test_everything_registered_is_described_in_one_line(registry: Registry[object]) -> None:
    for entry in describe(registry):
        assert entry.meaning.endswith((".", ":")) or len(entry.meaning) > 20, entry


def test_nearest_suggests_only_what_is_near() -> None:
    assert nearest("bfloat16", ["bf16", "fp16", "fp32"]) == "did you mean 'bf16'?"
    assert nearest("zzz", ["b", "a"]) == "known: a, b"
    assert nearest("zzz", []) == "none is known"

"""Shapes, problems and the keys that identify them."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision.errors import UsageError
from precision.problem import Case, Problem, Shape

SHAPE = Shape(2, 6, 3, 5, 7, 8, 9)
PROBLEM = Problem(SHAPE, "fp16")


def test_sizes_by_hand() -> None:
    assert SHAPE.d_model == 48
    assert SHAPE.is_grouped and not replace(SHAPE, kv_heads=6).is_grouped
    assert SHAPE.input_elements == 2 * 6 * 5 * 8 + 2 * 3 * 7 * 8 + 2 * 3 * 7 * 9


def test_text_says_what_differs() -> None:
    assert str(SHAPE) == "b2 h6/3 n5x7 d8/9"
    assert str(Shape(1, 4, 4, 16, 16, 64, 64)) == "b1 h4 n16 d64"
    assert str(PROBLEM) == "normal b2 h6/3 n5x7 d8/9 fp16 mask=none scale=sqrt_dk"


def test_empty_shapes_are_shapes() -> None:
    assert Shape(0, 1, 1, 0, 0, 1, 1).input_elements == 0


@pytest.mark.parametrize("name", ["batch", "q_len", "kv_len"])
def test_lengths_below_zero(name: str) -> None:
    with pytest.raises(UsageError, match=f"{name} is -1; it must be 0 or more"):
        replace(SHAPE, **{name: -1})


@pytest.mark.parametrize("name", ["q_heads", "kv_heads", "d_k", "d_v"])
def test_heads_and_widths_below_one(name: str) -> None:
    with pytest.raises(UsageError, match=f"{name} is 0; it must be 1 or more"):
        replace(SHAPE, **{name: 0})


@pytest.mark.parametrize(("q_heads", "kv_heads"), [(6, 4), (2, 3)])
def test_heads_that_cannot_be_grouped(q_heads: int, kv_heads: int) -> None:
    with pytest.raises(UsageError, match=f"q_heads {q_heads} is not a multiple of kv_heads {kv_heads}"):
        replace(SHAPE, q_heads=q_heads, kv_heads=kv_heads)


def test_unknown_dtype() -> None:
    with pytest.raises(UsageError, match="unknown dtype 'fp8'"):
        Problem(SHAPE, "fp8")


@pytest.mark.parametrize(
    "change",
    [
        {"shape": replace(SHAPE, q_len=6)},
        {"dtype": "bf16"},
        {"inputs": "large[std=4]"},
        {"mask": "causal"},
        {"scale": "none"},
        {"scale": 1.0},
        {"seed": 1},
        {"digest": "ab"},
    ],
)
def test_whatever_changes_the_function_changes_the_key(change: dict[str, object]) -> None:
    assert replace(PROBLEM, **change).key != PROBLEM.key


def test_key_is_the_same_in_every_process_and_version() -> None:
    """A store holds keys for years: SHA-256 of the sorted JSON, typed out here."""
    import hashlib

    text = (
        '{"digest": "", "dtype": "fp16", "inputs": "normal", "mask": "none", "scale": "sqrt_dk", "seed": 0, "shape": '
        '{"batch": 2, "d_k": 8, "d_v": 9, "kv_heads": 3, "kv_len": 7, "q_heads": 6, "q_len": 5}}'
    )
    assert PROBLEM.key == hashlib.sha256(text.encode()).hexdigest()[:16]


@given(st.lists(st.tuples(st.integers(0, 9), st.sampled_from(["eager", "sdpa-math"])), unique=True, max_size=12))
def test_different_cases_have_different_keys(pairs: list[tuple[int, str]]) -> None:
    cases = [Case(replace(PROBLEM, seed=seed), method) for seed, method in pairs]
    assert len({case.key for case in cases}) == len(pairs)
    assert all(len(case.key) == 16 and int(case.key, 16) >= 0 for case in cases)

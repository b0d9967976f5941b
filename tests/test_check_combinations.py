"""The problems that combine features: every two of them meet in every dtype, and each is what it is called."""

from __future__ import annotations

import re
from itertools import combinations, product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from precision.checking.problems import PROBLEMS, Call, CheckProblem
from precision.checking.problems.pairs import cover_pairs
from tests.plain import plain_attention

CPU = torch.device("cpu")
AXES = [
    {"none", "causal", "additive", "bool", "sparse", "window", "padding", "left padding"},
    {"normal", "large", "rising"},
    {None, 0.4},
    {(1, 1), (4, 1), (6, 2), (14, 2), (33, 33)},
    {1, 16, 67, 200},
    {1, 16, 67, 130, 547},
    {(32, 32), (40, 24), (128, 128), (72, 200)},
    {1, 3},
    {"plain", "heads inside", "transposed"},
]


@given(st.lists(st.integers(1, 4), min_size=2, max_size=5), st.integers(0, 100))
def test_every_two_values_of_two_axes_meet(sizes: list[int], seed: int) -> None:
    axes = {str(axis): range(size) for axis, size in enumerate(sizes)}
    rows = list(cover_pairs(axes, seed))
    for one, other in combinations(axes, 2):
        assert {(row[one], row[other]) for row in rows} == set(product(axes[one], axes[other]))
    assert len(rows) <= len(list(product(*axes.values())))


def test_rows_that_are_not_allowed_are_left_out_and_a_pair_that_has_none_is_an_error() -> None:
    axes = {"a": (0, 1, 2), "b": (0, 1, 2), "c": (0, 1, 2)}
    rows = list(cover_pairs(axes, 0, lambda row: sum(row.values()) < 6))
    assert {(row["a"], row["b"]) for row in rows} == set(product(range(3), range(3)))
    assert not any(sum(row.values()) == 6 for row in rows)
    with pytest.raises(ValueError, match="no allowed row"):
        list(cover_pairs(axes, 0, lambda row: row["a"] + row["b"] < 4))


def _pairs(dtype: str) -> list[CheckProblem]:
    return [problem for problem in PROBLEMS if problem.name.startswith(f"pairs-{dtype}-")]


def _said(problem: CheckProblem) -> tuple[str, str]:
    """The mask and the logits by name."""
    found = re.search(r"mask ([\w ]+), logits (\w+)", problem.purpose)
    assert found
    return found[1], found[2]


def _layouts(call: Call) -> set[str]:
    """What the strides of q, k and v say; where sizes are 1, several layouts have the same strides."""
    tensors = (call.x.q, call.x.k, call.x.v)
    views = {
        "plain": tensors,
        "heads inside": [t.transpose(1, 2) for t in tensors],
        "transposed": [t.mT for t in tensors],
    }
    return {name for name, view in views.items() if all(t.is_contiguous() for t in view)}


@pytest.mark.parametrize("dtype", ["fp64", "fp32", "fp16", "bf16"])
def test_every_two_features_meet_in_every_dtype(dtype: str) -> None:
    met = set()
    for problem in _pairs(dtype):
        call = problem.make(dtype, 0, CPU)
        (batch, q_heads, q_len, d_k), (_, kv_heads, kv_len, d_v) = call.x.q.shape, call.x.v.shape
        sizes = [(q_heads, kv_heads), q_len, kv_len, (d_k, d_v), batch]
        for layout in _layouts(call):
            row = [*_said(problem), call.x.scale, *sizes, layout]
            met |= set(combinations(enumerate(row), 2))
    axes = combinations(enumerate(AXES), 2)
    wanted = {((i, a), (j, b)) for (i, one), (j, other) in axes for a, b in product(one, other)}
    assert wanted - met == set()


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_masks_and_logits_are_what_they_are_called(dtype: str) -> None:
    for problem in _pairs(dtype):
        call = problem.make(dtype, 0, CPU)
        mask, logits = _said(problem)
        kept = call.x.attn_mask
        assert (kept is None) == (mask in ("none", "causal")) and call.x.is_causal == (mask == "causal")
        if kept is not None and kept.dtype == torch.bool:
            assert bool(kept.any(-1).all()), problem.name
            assert kept.dim() == (2 if mask == "window" else 4)
        if mask == "padding":
            assert kept is not None and bool((kept[..., 1:] <= kept[..., :-1]).all())
        if mask == "left padding":
            assert kept is not None and bool((kept[..., 1:] >= kept[..., :-1]).all())
        if mask == "none" and problem.shape.kv_len > 60:
            found = plain_attention(call.x).logits
            std = float((found - found.mean(-1, keepdim=True)).std())
            low, high = {"normal": (0.7, 1.3), "large": (5, 11), "rising": (3, 4.5)}[logits]
            assert low < std < high, (problem.name, std)


def test_no_dtype_has_the_combinations_of_another() -> None:
    rows = {dtype: {(p.purpose, str(p.shape)) for p in _pairs(dtype)} for dtype in ("fp32", "fp16", "bf16")}
    for one, other in combinations(rows.values(), 2):
        assert len(one & other) < len(one) / 4

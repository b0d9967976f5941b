"""The problems that combine features meet every pair of them in every dtype, told by their tensors."""

from __future__ import annotations

from itertools import combinations, product

import pytest
import torch

from precision.checking.problems import PROBLEMS, Call

CPU = torch.device("cpu")
AXES = [
    {"none", "causal", "bool", "additive", "key padding"},
    {None, 0.4},
    {(2, 2), (4, 1), (6, 2), (14, 2)},
    {1, 16, 67, 130},
    {1, 16, 67, 130},
    {(32, 32), (64, 64), (40, 24), (128, 128), (72, 200)},
    {1, 2},
    {"plain", "heads inside", "transposed"},
]


def _mask(call: Call) -> str:
    mask = call.x.attn_mask
    if mask is None:
        return "causal" if call.x.is_causal else "none"
    if mask.dtype != torch.bool:
        return "additive"
    return "key padding" if mask.shape[1:3] == (1, 1) else "bool"


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
    for problem in PROBLEMS:
        if problem.name.startswith("pairs-") and problem.dtypes == (dtype,):
            call = problem.make(dtype, 0, CPU)
            (batch, q_heads, q_len, d_k), (_, kv_heads, kv_len, d_v) = call.x.q.shape, call.x.v.shape
            sizes = [(q_heads, kv_heads), q_len, kv_len, (d_k, d_v), batch]
            for layout in _layouts(call):
                row = [_mask(call), call.x.scale, *sizes, layout]
                met |= set(combinations(enumerate(row), 2))
    axes = combinations(enumerate(AXES), 2)
    wanted = {((i, a), (j, b)) for (i, one), (j, other) in axes for a, b in product(one, other)}
    assert wanted - met == set()


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
def test_no_dtype_has_the_combinations_of_another(dtype: str) -> None:
    def rows(name: str) -> set[tuple[str, str]]:
        found = (problem for problem in PROBLEMS if problem.name.startswith(f"pairs-{name}-"))
        return {(problem.purpose, str(problem.shape)) for problem in found}

    own, other = rows(dtype), rows("fp64")
    assert len(own & other) < len(own) / 4

"""The fp64 reference against a second algorithm and against 50 digits."""

import math
from dataclasses import replace
from unittest.mock import patch

import mpmath
import pytest
import torch
from draws import normal
from hypothesis import given
from plain import any_operands
from reference_calls import SMALL_TILES, assert_close, operands
from torch import Tensor

from precision.numerics import scores
from precision.numerics.reference import attend
from precision.operands import Operands


@given(x=any_operands(), tile=SMALL_TILES)
def test_is_the_definition_on_every_kind_of_call(x: Operands, tile: tuple[int, int]) -> None:
    with patch.dict(scores._TILE, cpu=tile):
        # A logit of size 300 is off by 300 u d_k, and its weight by as much: 300 x 1.1e-16 x 6 = 2e-13.
        assert_close(attend(x), x, 2e-13)


@pytest.mark.parametrize("kind", ["none", "causal", "bool", "additive"])
@pytest.mark.parametrize(("q_len", "kv_len"), [(3, 255), (2, 256), (3, 257), (1023, 7), (1024, 6), (1025, 258)])
def test_is_the_definition_beside_the_edges_of_tiles(kind: str, q_len: int, kv_len: int) -> None:
    x = operands(q_len=q_len, kv_len=kv_len, is_causal=kind == "causal")
    if kind == "bool":
        x = replace(x, attn_mask=normal(q_len, kv_len) < 0.5)
    elif kind == "additive":
        x = replace(x, attn_mask=normal(q_len, kv_len))
    assert_close(attend(x), x, 1e-13)


def test_tiles_change_only_the_rounding() -> None:
    x = operands(q_len=1025, kv_len=1023, is_causal=True)
    with patch.dict(scores._TILE, cpu=(401, 113)):
        tiled = attend(x)
    torch.testing.assert_close(tiled.out, attend(x).out, rtol=0, atol=1e-14)


@pytest.mark.parametrize(
    ("std", "d", "kv_len", "tolerance"),
    [(1.0, 64, 300, 1e-14), (1.0, 16, 1025, 1e-14), (18.0, 64, 300, 1e-12), (16.0, 16, 513, 1e-12)],
)
def test_error_against_fifty_digits(std: float, d: int, kv_len: int, tolerance: float) -> None:
    q, k = std * normal(1, 1, 40, d), std * normal(1, 1, kv_len, d, seed=1)
    v = normal(1, 1, kv_len, 5, seed=2)
    if tolerance > 1e-14:
        assert 1000 < float((q @ k.mT).abs().max()) / math.sqrt(d) < 2000
    right = attend(Operands(q, k, v))
    for row in (0, 13, 39):
        out, lse = fifty_digits(q[0, 0, row], k[0, 0], v[0, 0])
        errors = [abs(a - b) for a, b in zip(right.out[0, 0, row].tolist(), out, strict=True)]
        assert max(errors) <= tolerance * float(v.abs().max())
        assert abs(right.lse[0, 0, row].item() - lse) <= tolerance


def fifty_digits(q: Tensor, k: Tensor, v: Tensor) -> tuple[list[mpmath.mpf], mpmath.mpf]:
    """out and lse of one row; the scale is the double nearest to 1/sqrt(d), as any fp64 code has it."""
    with mpmath.workdps(50):
        scale = mpmath.mpf(1 / math.sqrt(len(q)))
        powers = [mpmath.exp(scale * mpmath.fdot(zip(q.tolist(), key, strict=True))) for key in k.tolist()]
        total = mpmath.fsum(powers)
        out = [mpmath.fdot(zip(powers, column, strict=True)) / total for column in v.T.tolist()]
        return out, mpmath.log(total)

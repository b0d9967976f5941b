"""Tiles of fp64 scores: every pair once, exact, and -inf exactly where a key takes no part.

The inputs are small whole numbers, so every score is exact and equality is the test.
"""

from dataclasses import replace
from unittest.mock import patch

import pytest
import torch
from torch import Tensor

from precision.numerics import scores
from precision.numerics.scores import Scores
from precision.operands import Operands

CASES = pytest.mark.parametrize("kind", ["none", "causal", "bool", "additive"])
TILES = pytest.mark.parametrize("tile", [(1, 1), (2, 3), (5, 4), (1024, 256)])


def operands(kind: str) -> Operands:
    generator = torch.Generator().manual_seed(0)

    def whole(*shape: int) -> Tensor:
        return torch.randint(-3, 4, shape, generator=generator).float()

    x = Operands(whole(2, 4, 7, 3), whole(2, 2, 10, 3), whole(2, 2, 10, 2), is_causal=kind == "causal", scale=0.5)
    if kind == "bool":
        return replace(x, attn_mask=whole(2, 1, 7, 10) > 0)
    if kind == "additive":
        return replace(x, attn_mask=whole(4, 1, 10).masked_fill(whole(4, 1, 10) > 0, -torch.inf))
    return x


def dense(x: Operands) -> tuple[Tensor, Tensor, Tensor]:
    """raw, logits and masked, (B, Hq, L, S), in three lines."""
    raw = x.q.double() @ x.k.double().repeat_interleave(2, 1).mT
    mask = torch.ones(7, 10).tril().bool() if x.is_causal else x.attn_mask
    if mask is None:
        return raw, raw / 2, torch.zeros_like(raw, dtype=torch.bool)
    if mask.dtype == torch.bool:
        return raw, (raw / 2).masked_fill(~mask, -torch.inf), ~mask.expand(raw.shape)
    return raw, raw / 2 + mask, (mask == -torch.inf).expand(raw.shape)


@CASES
@TILES
def test_tiles_cover_every_pair_once(kind: str, tile: tuple[int, int]) -> None:
    x = operands(kind)
    raw, logits, masked = dense(x)
    times = torch.zeros_like(raw)
    with patch.dict(scores._TILE, cpu=tile):
        all_scores = Scores(x)
        for block in all_scores.blocks():
            tiles = list(all_scores.tiles(block))  # kept side by side: none may overwrite another
            for piece in tiles:
                where = (*block.index, piece.keys)
                times[where] += 1
                assert torch.equal(piece.raw, raw[where])
                assert torch.equal(piece.logits, logits[where])
                assert torch.equal(
                    masked[where], torch.zeros_like(masked[where]) if piece.masked is None else piece.masked
                )
    assert (times == 1).all()


@CASES
@TILES
def test_logits_of_the_keys_that_are_seen(kind: str, tile: tuple[int, int]) -> None:
    x = operands(kind)
    _, logits, masked = dense(x)
    unseen = torch.ones_like(masked)
    with patch.dict(scores._TILE, cpu=tile):
        all_scores = Scores(x)
        for block in all_scores.blocks():
            for keys, values in all_scores.logits(block):
                where = (*block.index, keys)
                assert torch.equal(values, logits[where])
                values.fill_(torch.nan)  # the caller may overwrite them
                unseen[where] = False
    assert masked[unseen].all()  # what is left out is masked
    if kind == "causal" and tile[0] < 7:
        assert unseen.any()  # and leaving it out is the point


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_arithmetic_is_fp64_whatever_the_inputs(dtype: torch.dtype) -> None:
    """1 + 2^-20 needs 21 bits: fp16 and bf16 hold the factors but not the score."""
    x = Operands(
        torch.tensor([[[[1.0, 2.0**-10]]]]).to(dtype),
        torch.tensor([[[[1.0, 2.0**-10]]]]).to(dtype),
        torch.ones(1, 1, 1, 1),
    )
    all_scores = Scores(x)
    (block,) = all_scores.blocks()
    (tile,) = all_scores.tiles(block)
    assert tile.raw.dtype == torch.float64
    assert tile.raw.item() == 1 + 2.0**-20


def test_keys_and_values_of_a_query_head_are_those_of_its_group() -> None:
    x = operands("none")
    all_scores = Scores(x)
    for block in all_scores.blocks():
        assert torch.equal(all_scores.queries(block), x.q[block.batch, block.head].double())
        assert torch.equal(all_scores.keys(block, slice(2, 5)), x.k[block.batch, block.head // 2, 2:5].double())
        assert torch.equal(all_scores.values(block, slice(2, 5)), x.v[block.batch, block.head // 2, 2:5].double())

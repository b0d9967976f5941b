"""The problems of blocks: empty ones at the front and in one sequence, merged ones, and sums that are not divided."""

from __future__ import annotations

import pytest
import torch

from precision.checking.problems import find_problem
from tests.plain import plain_attention

CPU = torch.device("cpu")


def _empty_blocks(name: str) -> torch.Tensor:
    """(B, H or 1, L or 1, blocks of 64 keys), True where a row sees none of the keys."""
    mask = find_problem(name).make("fp32", 0, CPU).x.attn_mask
    assert mask is not None
    return ~torch.stack([block.any(-1) for block in mask.split(64, -1)], -1)


@pytest.mark.parametrize(("name", "axis"), [("ragged-batch", 0), ("ragged-heads", 1), ("ragged-rows", 2)])
def test_blocks_that_are_empty_for_the_first_are_not_for_the_last(name: str, axis: int) -> None:
    empty = _empty_blocks(name).movedim(axis, 0)
    assert bool((empty[0] & ~empty[-1]).any())
    assert not bool((empty[-1] & ~empty[0]).any())


def test_every_sequence_but_no_last_block_is_empty_at_the_front() -> None:
    empty = _empty_blocks("left-padding").reshape(3, -1)
    assert empty[:, 0].all() and not empty[:, -1].any()


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_contrasts_have_exact_scores_and_lse_of_blocks_that_the_format_rounds_each_in_its_own_way(dtype: str) -> None:
    problem = find_problem("contrasts")
    exact, x = (problem.make(d, 0, CPU).x for d in ("fp64", dtype))
    assert torch.equal(x.q.double() @ x.k.double().mT, exact.q @ exact.k.mT)
    assert torch.equal((x.q @ x.k.mT).double(), exact.q @ exact.k.mT)
    lse = torch.stack([block.logsumexp(-1) for block in plain_attention(x).logits.split(256, -1)])
    off = lse.to(x.q.dtype).double() - lse
    # Half of a uniform rounding's standard deviation at least, between the blocks of one row.
    spacing = 2.0 ** (torch.frexp(lse).exponent - {"fp16": 11, "bf16": 8}[dtype])
    assert float((off / spacing).std(0).median()) > 0.5 * (1 / 12) ** 0.5


def test_large_sums_are_beyond_fp16_and_their_quotients_are_not() -> None:
    x = find_problem("large-sums").make("fp16", 0, CPU).x
    assert float(x.v.double().sum(2).min()) > 65520
    assert float(plain_attention(x).out.max()) < 64


def test_gradients_of_the_output_are_beyond_or_below_another_format() -> None:
    largest, smallest = 65504.0, 2.0**-24
    assert float(find_problem("do-large").make("bf16", 0, CPU).do.double().abs().median()) > largest
    assert float(find_problem("do-small").make("bf16", 0, CPU).do.double().abs().max()) < smallest
    for name in ("do-16-large", "do-16-small"):
        do = find_problem(name).make("fp16", 0, CPU).do
        assert bool(do.isfinite().all()) and float((do != 0).double().mean()) > 0.99


def test_packed_tensors_share_memory_and_one_tensor_is_all_three() -> None:
    packed, one = (find_problem(name).make("fp32", 0, CPU).x for name in ("packed", "one-tensor"))
    assert len({t.untyped_storage().data_ptr() for t in (packed.q, packed.k, packed.v)}) == 1
    assert not torch.equal(packed.q, packed.k)
    assert one.q is one.k is one.v


def test_a_global_row_lies_inside_of_a_tile_whose_first_and_last_rows_see_nothing() -> None:
    mask = find_problem("global-rows").make("fp32", 0, CPU).x.attn_mask
    assert mask is not None
    for rows, keys in ((64, 64), (64, 32), (128, 64)):
        hidden = 0
        for i in range(0, mask.shape[0] - rows + 1, rows):
            for j in range(0, mask.shape[1] - keys + 1, keys):
                tile = mask[i : i + rows, j : j + keys]
                hidden += bool(tile.any()) and not bool(tile[0].any() or tile[-1].any())
        assert hidden > 0, (rows, keys)


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
def test_the_products_of_outlier_channels_cancel_exactly(dtype: str) -> None:
    x = find_problem("outlier-channels").make(dtype, 0, CPU).x
    terms = (x.q[..., 0, :] * x.k[..., 0, :]).double()
    assert terms[..., 0].eq(576).all() and terms[..., -1].eq(-576).all()


@pytest.mark.parametrize("name", ["long-offsets", "long-staircase"])
def test_logits_of_long_rows_are_beyond_what_exp_holds(name: str) -> None:
    logits = plain_attention(find_problem(name).make("fp32", 0, CPU).x).logits
    assert float(logits.max()) > 88.73 and logits.shape[-1] > 1024  # exp(88.73) is the largest number of fp32

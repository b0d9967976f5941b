"""What a mask is: weights on keys that it was to hide, and warnings, each beside a mask that deserves none."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from precision.numerics.mask_facts import MaskFacts, find_mask_facts
from precision.numerics.reference import attend
from precision.operands import Operands


def operands(mask: Tensor | None, *, batch: int = 1, logits: tuple[float, ...] = (0.0, 0.0, 0.0)) -> Operands:
    """Two heads and two queries against three keys whose logits, before the mask, are given."""
    k = torch.tensor(logits)[None, None, :, None].expand(batch, 2, 3, 1)
    stream = torch.Generator().manual_seed(0)
    return Operands(torch.ones(batch, 2, 2, 1), k, torch.randn(batch, 2, 3, 4, generator=stream), mask, scale=1.0)


def facts(x: Operands) -> MaskFacts:
    return find_mask_facts(x, attend(x))


def test_no_mask() -> None:
    assert facts(operands(None)) == MaskFacts("", None, None, "")


@pytest.mark.parametrize(("logits", "kept"), [((0.0, 0.0, 0.0), 0.0), ((-22500.0, -22500.0, 0.0), 1.0)])
def test_weight_that_a_number_does_not_hide(logits: tuple[float, ...], kept: float) -> None:
    """At -10000 the third key is hidden from logits of 0, and wins against logits of -22500."""
    found = facts(operands(torch.tensor([0.0, 0.0, -1e4]), logits=logits))
    assert (found.mask_dtype, found.mask_lowest, found.masked_weight_max) == ("fp32", -1e4, kept)
    assert ("lowest value is -10000 in fp32" in found.mask_warning) == (kept > 0)


def test_weight_by_hand() -> None:
    """exp(1) / (2 + exp(1)) for a key at 10001 - 10000 beside two at 0; the other row hides nothing."""
    mask = torch.tensor([[0.0, 0.0, -1e4], [0.0, 0.0, 0.0]])
    found = facts(operands(mask, logits=(0.0, 0.0, 10001.0)))
    assert found.masked_weight_max == pytest.approx(math.e / (2 + math.e), rel=1e-12)


def test_a_row_of_the_lowest_number_keeps_all_its_weight() -> None:
    for dtype, name in ((torch.float16, "fp16"), (torch.bfloat16, "bf16"), (torch.float32, "fp32")):
        lowest = torch.finfo(dtype).min
        found = facts(operands(torch.tensor([[0.0, 0.0, 0.0], [lowest, lowest, lowest]], dtype=dtype)))
        assert (found.mask_dtype, found.mask_lowest) == (name, lowest)
        assert found.masked_weight_max == pytest.approx(1.0, rel=1e-12)
        assert f"{lowest:.6g} in {name}" in found.mask_warning


def test_minus_infinity_a_bias_and_a_boolean_mask_hide_as_they_say() -> None:
    for mask in (torch.tensor([0.0, -math.inf, -3.0]), torch.tensor([-0.5, -511.5, 0.0])):
        found = facts(operands(mask))
        assert found.masked_weight_max is None and found.mask_warning == ""
    assert facts(operands(torch.tensor([True, False, True]))) == MaskFacts("bool", None, None, "")
    everything = facts(operands(torch.full((3,), -math.inf)))
    assert (everything.mask_lowest, everything.masked_weight_max) == (None, None)


def test_a_nan_takes_part_in_no_sum() -> None:
    x = operands(torch.tensor([0.0, 0.0, -1e4]))
    q = x.q.clone()
    q[0, 0, 0] = math.nan
    assert facts(replace(x, q=q)).masked_weight_max == 0.0


def test_zero_and_one_mask_nothing() -> None:
    assert "hides nothing" in facts(operands(torch.tensor([[0.0, 1.0, 1.0], [1.0, 1.0, 1.0]]))).mask_warning
    for other in (torch.tensor([0.0, 1.0, 0.5]), torch.zeros(3), torch.tensor([True, False, True])):
        assert facts(operands(other)).mask_warning == ""


def test_three_dimensions_are_warned_of_where_heads_and_batches_are_as_many() -> None:
    mask = torch.tensor([[[True, True, False]], [[False, True, True]]]).expand(2, 2, 3)
    x = operands(mask, batch=2)
    found = facts(x)
    other = attend(replace(x, attn_mask=mask[:, None].expand(2, 2, 2, 3))).out
    off = float((other - attend(x).out).abs().max())
    assert "A mask of shape (2, 2, 3) is one for each head" in found.mask_warning
    assert f"as one for each of the 2 batches the output would be off by up to {off:.2g}" in found.mask_warning
    assert facts(operands(mask)).mask_warning == ""  # one batch
    assert facts(replace(x, attn_mask=mask[:, None])).mask_warning == ""  # four dimensions

"""What an attention mask is, where that is often not what its author meant."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from precision.formats import FORMATS
from precision.numerics.reference import Reference, attend
from precision.numerics.scores import Scores
from precision.operands import Operands

# Additive masks hide keys with -10000 (BERT's code, 2018) or less; this is what bf16 makes of it.
_MEANT_TO_HIDE = -9984.0


@dataclass(frozen=True)
class MaskFacts:
    """Facts about the mask of one call; None and empty where there is no such mask."""

    mask_dtype: str  # bool, or a format
    mask_lowest: float | None  # lowest finite value of an additive mask
    masked_weight_max: float | None  # weight on keys that an additive mask is meant to hide, worst row
    mask_warning: str  # a sentence each


def find_mask_facts(x: Operands, right: Reference) -> MaskFacts:
    """Facts about the mask of the operands as given, with their fp64 reference."""
    mask = x.attn_mask
    if mask is None or mask.numel() == 0:
        return MaskFacts("", None, None, "")
    name = str(mask.dtype).removeprefix("torch.")
    dtype = next((format.name for format in FORMATS.values() if format.torch_name == name), name)
    warnings = _warn_of_axes(mask, x, right)
    if mask.dtype == torch.bool:
        return MaskFacts(dtype, None, None, warnings)
    finite = mask[mask.isfinite()]
    lowest = float(finite.min()) if finite.numel() else None
    weight = _hidden_weight(x, right) if lowest is not None and lowest <= _MEANT_TO_HIDE else None
    zeros, ones = mask == 0, mask == 1
    if bool((zeros | ones).all() and zeros.any() and ones.any()):
        warnings += "A float mask of 0 and 1 is added to the scores and hides nothing. "
    if weight:
        warnings += (
            f"The mask's lowest value is {lowest:.6g} in {dtype}, which is added and is no mask: keys that have it "
            f"take up to {weight:.3g} of a row's weight of 1. "
        )
    return MaskFacts(dtype, lowest, weight, warnings.strip())


def _warn_of_axes(mask: Tensor, x: Operands, right: Reference) -> str:
    batch, heads = x.q.shape[:2]
    if mask.dim() != 3 or not mask.shape[0] == batch == heads or batch == 1:
        return ""
    for_batches = attend(replace(x, attn_mask=mask[:, None])).out
    return (
        f"A mask of shape {tuple(mask.shape)} is one for each head; as one for each of the {batch} batches the output "
        f"would be off by up to {float((for_batches - right.out).abs().max()):.2g}, and no error tells of it. "
    )


def _hidden_weight(x: Operands, right: Reference) -> float:
    """The largest sum, over the rows, of the weights of keys whose finite mask value is meant to hide them."""
    assert x.attn_mask is not None
    mask = x.attn_mask.expand(*x.q.shape[:3], x.k.shape[2])
    scores = Scores(x)
    hidden = torch.zeros_like(right.lse)
    for block in scores.blocks():
        for keys, logits in scores.logits(block):
            low = mask[*block.index, keys] <= _MEANT_TO_HIDE
            # Not from the log-sum-exp, which forgets the sum when the logits are as large as these.
            row_max, row_sum = (part[block.index][:, None] for part in (right.row_max, right.row_sum))
            weights = (logits - row_max).exp() / row_sum
            hidden[block.index] += weights.where(low & weights.isfinite(), 0.0).sum(-1)
    return float(hidden.max())

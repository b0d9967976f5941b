"""Wrong masks and alignments."""

import math
from typing import Any

import torch
from torch import Tensor

from tests.kernels.catalogue import NARROW, wrong
from tests.kernels.parts import apply_mask, attend, causal, softmax, wide


@wrong(says="bottom-right aligned")
def causal_bottom_right(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    def masked(scores: Tensor, attn_mask: Tensor | None, is_causal: bool) -> Tensor:
        if is_causal:
            return scores.masked_fill(~causal(scores, first_row=max(0, scores.shape[-1] - scores.shape[-2])), -math.inf)
        return apply_mask(scores, attn_mask, is_causal)

    return attend(q, k, v, masked=masked, **call)


def _shifted(shift: int) -> Any:
    def masked(scores: Tensor, attn_mask: Tensor | None, is_causal: bool) -> Tensor:
        if is_causal:
            seen = causal(scores, first_row=shift)
            seen[:, 0] = True
            return scores.masked_fill(~seen, -math.inf)
        return apply_mask(scores, attn_mask, is_causal)

    return masked


@wrong(says="leaves out the diagonal")
def causal_without_diagonal(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    return attend(q, k, v, masked=_shifted(-1), **call)


@wrong(says="key i + 1")
def causal_with_next_key(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    return attend(q, k, v, masked=_shifted(1), **call)


@wrong(says="is_causal is ignored")
def causal_ignored(q: Tensor, k: Tensor, v: Tensor, is_causal: bool = False, **call: Any) -> Tensor:
    return attend(q, k, v, **call)


@wrong(says="is_causal is ignored")
def causal_only_for_squares(q: Tensor, k: Tensor, v: Tensor, is_causal: bool = False, **call: Any) -> Tensor:
    return attend(q, k, v, is_causal=is_causal and q.shape[2] == k.shape[2], **call)


@wrong(says="looks causal")
def always_causal(q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, **call: Any) -> Tensor:
    return attend(q, k, v, attn_mask=attn_mask, **{**call, "is_causal": attn_mask is None})


@wrong()
def causal_by_blocks(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    """A block of 16 x 16 on the diagonal is kept whole."""

    def masked(scores: Tensor, attn_mask: Tensor | None, is_causal: bool) -> Tensor:
        if is_causal:
            row, key = torch.arange(scores.shape[-2])[:, None] // 16, torch.arange(scores.shape[-1]) // 16
            return scores.masked_fill(key > row, -math.inf)
        return apply_mask(scores, attn_mask, is_causal)

    return attend(q, k, v, masked=masked, **call)


@wrong()
def mask_by_key_head(q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, **call: Any) -> Tensor:
    """A mask of each query head is looked up by the key head that the query head shares."""
    group = q.shape[1] // k.shape[1]
    if attn_mask is not None and attn_mask.dim() == 4 and attn_mask.shape[1] == q.shape[1]:
        attn_mask = attn_mask[:, torch.arange(q.shape[1]) // group]
    return attend(q, k, v, attn_mask=attn_mask, **call)


@wrong()
def causal_by_packed_rows(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    """Up to 16 queries of the heads of a group are packed as rows, and a row stands for its query."""
    group = q.shape[1] // k.shape[1]

    def masked(scores: Tensor, attn_mask: Tensor | None, is_causal: bool) -> Tensor:
        if not is_causal or scores.shape[-2] > 16:
            return apply_mask(scores, attn_mask, is_causal)
        first = torch.arange(scores.shape[1]) % group * scores.shape[-2]
        row = first[:, None, None] + torch.arange(scores.shape[-2])[:, None]
        return scores.masked_fill(torch.arange(scores.shape[-1]) > row, -math.inf)

    return attend(q, k, v, masked=masked, **call)


@wrong()
def blocks_skipped_by_their_first_row(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    """A block of 64 x 64 is left out where the mask of its first row is empty."""

    def masked(scores: Tensor, attn_mask: Tensor | None, is_causal: bool) -> Tensor:
        scores = apply_mask(scores, attn_mask, is_causal)
        if attn_mask is not None:
            for row in range(0, scores.shape[-2], 64):
                for key in range(0, scores.shape[-1], 64):
                    empty = (scores[..., row : row + 1, key : key + 64] == -math.inf).all(-1, keepdim=True)
                    block = scores[..., row : row + 64, key : key + 64]
                    scores[..., row : row + 64, key : key + 64] = block.masked_fill(empty, -1e4)
        return scores

    return attend(q, k, v, masked=masked, **call)


@wrong()
def empty_block_keeps_a_weight(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    """Keys are split in blocks of 256; one without a key counts as a row whose log-sum-exp is 0."""

    def weights(scores: Tensor) -> Tensor:
        blocks = scores.split(256, -1)
        empty = sum((block == -math.inf).all(-1, keepdim=True).to(scores.dtype) for block in blocks[1:])
        lse = scores.logsumexp(-1, keepdim=True)
        return (scores - torch.logaddexp(lse, torch.as_tensor(empty).log())).exp()

    return attend(q, k, v, weights=weights, **call)


@wrong(says="inverted")
def boolean_mask_inverted(q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, **call: Any) -> Tensor:
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        attn_mask = ~attn_mask
    return attend(q, k, v, attn_mask=attn_mask, **call)


@wrong(says="added as 0 and 1")
def boolean_mask_added(q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, **call: Any) -> Tensor:
    if attn_mask is not None:
        attn_mask = attn_mask.to(q.dtype)
    return attend(q, k, v, attn_mask=attn_mask, **call)


@wrong(says="before the scale")
def mask_before_scale(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, scale: float | None = None, **call: Any
) -> Tensor:
    factor = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    if attn_mask is not None and attn_mask.dtype != torch.bool:
        attn_mask = wide(attn_mask) * factor
    return attend(q, k, v, attn_mask=attn_mask, scale=scale, **call)


@wrong(says="is ignored")
def mask_ignored(q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, **call: Any) -> Tensor:
    return attend(q, k, v, **call)


@wrong(says="only the -inf")
def bias_ignored(q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, **call: Any) -> Tensor:
    if attn_mask is not None and attn_mask.dtype != torch.bool:
        attn_mask = attn_mask != -math.inf
    return attend(q, k, v, attn_mask=attn_mask, **call)


@wrong(says="first sequence")
def mask_of_first_sequence(q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, **call: Any) -> Tensor:
    if attn_mask is not None and attn_mask.dim() == 4:
        attn_mask = attn_mask[:1]
    return attend(q, k, v, attn_mask=attn_mask, **call)


@wrong(says="first head")
def mask_of_first_head(q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, **call: Any) -> Tensor:
    if attn_mask is not None and attn_mask.dim() == 4:
        attn_mask = attn_mask[:, :1]
    return attend(q, k, v, attn_mask=attn_mask, **call)


@wrong(says="-10000 added, not -inf")
def mask_of_minus_ten_thousand(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    def masked(scores: Tensor, attn_mask: Tensor | None, is_causal: bool) -> Tensor:
        if attn_mask is not None and attn_mask.dtype == torch.bool:
            return scores + (~attn_mask) * -1e4
        return apply_mask(scores, attn_mask, is_causal)

    return attend(q, k, v, masked=masked, **call)


@wrong()
def mask_after_softmax(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    """Masked weights are zeroed and the others not normalised again."""
    held: dict[str, Tensor] = {}

    def masked(scores: Tensor, attn_mask: Tensor | None, is_causal: bool) -> Tensor:
        held["kept"] = apply_mask(torch.zeros_like(scores), attn_mask, is_causal) > -math.inf
        finite = apply_mask(scores, attn_mask, is_causal)
        return scores.where(~held["kept"], finite)

    return attend(q, k, v, masked=masked, weights=lambda scores: softmax(scores) * held["kept"], **call)


@wrong(*NARROW, says="positions of the causal mask look rounded to")
def causal_positions_in_the_dtype(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    """Above 256 in bf16 and 2048 in fp16, neighbours have the same position."""

    def masked(scores: Tensor, attn_mask: Tensor | None, is_causal: bool) -> Tensor:
        if is_causal:
            row, key = (torch.arange(n).to(q.dtype) for n in scores.shape[-2:])
            return scores.masked_fill(key > row[:, None], -math.inf)
        return apply_mask(scores, attn_mask, is_causal)

    return attend(q, k, v, masked=masked, **call)


@wrong("bf16")
def mask_read_at_positions_in_the_dtype(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    def masked(scores: Tensor, attn_mask: Tensor | None, is_causal: bool) -> Tensor:
        if attn_mask is not None and attn_mask.shape[-1] == scores.shape[-1]:
            key = torch.arange(scores.shape[-1]).to(q.dtype).long().clamp(max=scores.shape[-1] - 1)
            attn_mask = attn_mask[..., key]
        return apply_mask(scores, attn_mask, is_causal)

    return attend(q, k, v, masked=masked, **call)


@wrong(says="query for batch")
def mask_of_queries_taken_for_padding(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, **call: Any
) -> Tensor:
    """(L, S) is taken for (B, S) where it may be."""
    if attn_mask is not None and attn_mask.dim() == 2 and attn_mask.shape[0] == q.shape[0]:
        attn_mask = attn_mask[:, None, None]
    return attend(q, k, v, attn_mask, **call)


@wrong(says="head for batch")
def mask_of_heads_taken_for_batches(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, **call: Any
) -> Tensor:
    """(H, L, S) is taken for (B, L, S) where it may be."""
    if attn_mask is not None and attn_mask.dim() == 3 and attn_mask.shape[0] == q.shape[0]:
        attn_mask = attn_mask[:, None]
    return attend(q, k, v, attn_mask, **call)


@wrong(says="batch for query")
def padding_taken_for_a_mask_of_queries(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, **call: Any
) -> Tensor:
    """(B, 1, 1, S) without its axes of size 1 is taken for (L, S) where it may be."""
    if attn_mask is not None and attn_mask.squeeze().dim() == 2 and attn_mask.squeeze().shape[0] == q.shape[2]:
        attn_mask = attn_mask.squeeze()
    return attend(q, k, v, attn_mask, **call)


@wrong(says="mask is transposed")
def square_mask_transposed(q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, **call: Any) -> Tensor:
    if attn_mask is not None and attn_mask.shape[-1] == attn_mask.shape[-2]:
        attn_mask = attn_mask.mT
    return attend(q, k, v, attn_mask, **call)


@wrong(says="are set to -100, not -inf")
def mask_of_minus_one_hundred(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    def masked(scores: Tensor, attn_mask: Tensor | None, is_causal: bool) -> Tensor:
        if attn_mask is not None and attn_mask.dtype == torch.bool:
            return scores.masked_fill(~attn_mask, -100.0)
        return apply_mask(scores, attn_mask, is_causal)

    return attend(q, k, v, masked=masked, **call)


@wrong(says="lacks the log2(e)")
def mask_without_log2_e(q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, **call: Any) -> Tensor:
    """Scores times log2(e) for exp2, but a float mask added as it is."""
    if attn_mask is not None and attn_mask.dtype != torch.bool:
        attn_mask = wide(attn_mask) * math.log(2)
    return attend(q, k, v, attn_mask, **call)


@wrong()
def blocks_empty_for_the_first_sequence_skipped(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, **call: Any
) -> Tensor:
    """Which blocks of keys are empty is looked up in the mask of the first sequence and head."""
    if attn_mask is None or attn_mask.dtype != torch.bool or attn_mask.dim() < 4:
        return attend(q, k, v, attn_mask, **call)
    first = attn_mask[:1, :1].any(-2, keepdim=True).expand(-1, -1, -1, k.shape[2])
    blocks = torch.nn.functional.pad(first, (0, -k.shape[2] % 64)).unflatten(-1, (-1, 64)).any(-1)
    return attend(q, k, v, attn_mask & blocks.repeat_interleave(64, -1)[..., : k.shape[2]], **call)


@wrong()
def tiles_skipped_by_their_first_and_last_row(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, **call: Any
) -> Tensor:
    """A tile of 64 queries and 32 keys is taken for empty where its first and its last query see nothing of it."""
    if attn_mask is None or attn_mask.dtype != torch.bool:
        return attend(q, k, v, attn_mask, **call)
    kept = attn_mask.expand(*attn_mask.shape[:-2], q.shape[2], k.shape[2]).clone()
    for rows in kept.split(64, -2):
        for tile in rows.split(32, -1):
            seen = tile[..., :1, :].any(-1, keepdim=True) | tile[..., -1:, :].any(-1, keepdim=True)
            tile &= seen.flatten().any()
    return attend(q, k, v, kept, **call)


@wrong()
def masks_left_out_for_the_upper_half_of_wide_values(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, **call: Any
) -> Tensor:
    """Values wider than 128 take two passes, and the second one has no mask."""
    passes = [attend(q, k, v[..., :128], attn_mask, **call)]
    passes += [attend(q, k, v[..., 128:], **call)] if v.shape[-1] > 128 else []
    return torch.cat(passes, -1)

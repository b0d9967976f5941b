"""What a call asks of a kernel beyond q, k and v. A kernel may refuse a feature; that is a limit, not a fault."""

from __future__ import annotations

import torch

from precision.checking.problems import Call


def features_of(call: Call) -> list[str]:
    """The features that the call needs, in words."""
    x = call.x
    widths_differ = x.q.shape[-1] != x.v.shape[-1]
    found = {
        "a boolean mask": x.attn_mask is not None and x.attn_mask.dtype == torch.bool,
        "an additive mask": x.attn_mask is not None and x.attn_mask.dtype != torch.bool,
        "is_causal": x.is_causal,
        "a scale": x.scale is not None and x.scale > 0,
        "a scale of 0 or below": x.scale is not None and x.scale <= 0,
        "grouped heads": x.enable_gqa,
        "d_v apart from d_k": widths_differ,
        "a width above 256": max(x.q.shape[-1], x.v.shape[-1]) > 256,
        "more than 65536 keys": x.k.shape[2] > 65_536,
        "more than 65536 query rows": x.q.shape[2] > 65_536,
        "strided inputs": not all(t.is_contiguous() for t in (x.q, x.k, x.v)),
    }
    return [feature for feature, needed in found.items() if needed]

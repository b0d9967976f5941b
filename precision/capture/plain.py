"""From the tensors of any SDPA call to plain 4-D tensors of the same meaning, on the CPU and owned by us."""

from __future__ import annotations

import torch
from torch import Tensor

from precision.errors import UsageError


def keep(tensor: Tensor) -> Tensor:
    """A copy on the CPU without history; raises UsageError on a tensor that is not a plain dense one."""
    with torch.inference_mode(False):  # a copy made in inference mode could not be differentiated later
        plain = tensor.detach()
        if type(plain) is not Tensor or plain.is_nested or plain.is_meta or plain.layout is not torch.strided:
            raise UsageError(
                f"the model hands a {type(plain).__name__} (layout {plain.layout}, device {plain.device}) to "
                "attention, which a capture cannot hold; run it with plain dense tensors"
            )
        return plain.to("cpu", copy=True).contiguous()


def as_computed(tensor: Tensor) -> Tensor:
    """The tensor in the dtype that attention gets: autocast converts after the call is seen here."""
    device = tensor.device.type
    converts = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
    if converts and tensor.is_floating_point() and tensor.dtype != torch.float64:
        return tensor.to(torch.get_autocast_dtype(device))
    return tensor


def four_dimensional(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, enable_gqa: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """q (B, Hq, L, d_k), k (B, Hkv, S, d_k), v (B, Hkv, S, d_v) and a mask that broadcasts to (B, Hq, L, S).

    torch takes (L, d) and (B, L, d) too, which are one head here, and broadcasts batches (and without
    enable_gqa heads), which are written out here.
    """
    if mask is not None and q.dim() == mask.dim() == 3:
        mask = mask.unsqueeze(-3)
    q, k, v = (_with_heads(tensor) for tensor in (q, k, v))
    own = -3 if enable_gqa else -2  # the dimensions from here on are each tensor's own
    shared = torch.broadcast_shapes(*(tensor.shape[:own] for tensor in (q, k, v)))  # type: ignore[no-untyped-call]
    q, k, v = (tensor.expand(*shared, *tensor.shape[own:]) for tensor in (q, k, v))
    return q, k, v, mask


def _with_heads(tensor: Tensor) -> Tensor:
    """(L, d) and (B, L, d) as (1, 1, L, d) and (B, 1, L, d)."""
    while tensor.dim() < 4:
        tensor = tensor.unsqueeze(-3)
    return tensor

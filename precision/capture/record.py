"""Record what a model hands to torch's scaled dot-product attention, without changing the model."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Module
from torch.overrides import TorchFunctionMode

from precision.capture.module_names import ModuleNames
from precision.capture.plain import as_computed, four_dimensional, keep
from precision.inputs.capture_file import CallTensors

_attention = F.scaled_dot_product_attention  # the same object as torch._C._nn.scaled_dot_product_attention
_operator = torch.ops.aten.scaled_dot_product_attention


def record(run: Callable[[], object], model: Module | None = None) -> list[CallTensors]:
    """Every call of SDPA that `run` makes in this thread, in order, as detached copies on the CPU.

    Calls are named after the module that makes them, relative to `model` or else to the outermost module that
    runs; `call-N` outside of any module. Compiled modules run uncompiled meanwhile, and torch's fused encoder
    layer, which does not go through SDPA, takes its unfused way. Whatever `run` raises passes through; raises
    UsageError on tensors that a capture cannot hold.
    """
    with ModuleNames(model) as names, torch.compiler.set_stance("force_eager"):
        recorder = _Recorder(names)
        with recorder:
            run()
    return recorder.calls


class _Recorder(TorchFunctionMode):
    def __init__(self, names: ModuleNames) -> None:
        super().__init__()
        self.calls: list[CallTensors] = []
        self._names = names

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func is _attention or func is _operator or func is _operator.default:
            return self._attend(*args, **kwargs)
        if func is F.multi_head_attention_forward:
            # The mode is off inside of this Python function, so the SDPA that it calls would not be seen.
            F.scaled_dot_product_attention = self._attend  # type: ignore[assignment]
            try:
                return func(*args, **kwargs)
            finally:
                F.scaled_dot_product_attention = _attention
        return func(*args, **kwargs)

    def _attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        *,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        out = _attention(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)
        q, k, v = (keep(as_computed(tensor)) for tensor in (query, key, value))
        mask = None if attn_mask is None else keep(as_computed(attn_mask))
        q, k, v, mask = four_dimensional(q, k, v, mask, enable_gqa)
        self.calls.append(
            CallTensors(
                name=self._names.next_name(),
                q=q,
                k=k,
                v=v,
                attn_mask=mask,
                is_causal=bool(is_causal),
                scale=None if scale is None else float(scale),
                enable_gqa=bool(enable_gqa),
                dropout_p=float(dropout_p),
            )
        )
        return out

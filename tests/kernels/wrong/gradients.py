"""Right outputs with wrong gradients."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tests.kernels.catalogue import wrong
from tests.kernels.parts import attend, default_scale, full_mask, group_heads, wide

Gradients = dict[str, Tensor]
Change = Callable[[Gradients, Gradients], Gradients]


def _same(gradients: Gradients, saved: Gradients) -> Gradients:
    return gradients


class _Attention(torch.autograd.Function):
    """Attention with its backward pass written out; `change` alters the gradients, `without` leaves out a term."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, factor: float, change: Change, without: str
    ) -> Tensor:
        logits = wide(q) @ wide(group_heads(k, q)).mT * factor
        ctx.logits = logits if bias is None else logits + bias
        ctx.lse = ctx.logits.logsumexp(-1, keepdim=True)
        weights = ctx.logits.softmax(-1)
        out = weights @ wide(group_heads(v, q))
        ctx.save_for_backward(q, k, v, weights, out)
        ctx.factor, ctx.change, ctx.without, ctx.raw = factor, change, without, logits
        return out.to(q.dtype)

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, p, out = ctx.saved_tensors
        do = wide(outer[0])
        if ctx.without == "mask":
            p = ctx.raw.softmax(-1)
        if ctx.without == "lse of the mask":
            p = (ctx.raw - ctx.lse).exp()
        if ctx.without == "wide lse":
            p = (ctx.logits - ctx.lse.to(q.dtype)).exp()
        if ctx.without == "do":
            do = torch.ones_like(do)
        if ctx.without == "strides":
            do = _contiguous(outer[0])
        dp = do @ wide(group_heads(v, q)).mT
        columns = {"D": 0, "columns of D": q.shape[-1]}.get(ctx.without, out.shape[-1])
        d = (do * out)[..., :columns].sum(-1, keepdim=True)
        ds = p * (dp - d)

        def shared(x: Tensor) -> Tensor:
            grouped = x.unflatten(1, (k.shape[1], -1))
            if ctx.without in ("group", "first"):
                return grouped[:, :, 0 if ctx.without == "group" else -1]
            return grouped.mean(2) if ctx.without == "sum" else _shared(x, k)

        gradients = {
            "dq": ctx.factor * ds @ wide(group_heads(k, q)),
            "dk": shared(ctx.factor * ds.mT @ wide(q)),
            "dv": shared(p.mT @ do),
        }
        saved = {"q": q, "k": k, "v": v, "p": p, "do": do, "scale": torch.tensor(ctx.factor)}
        gradients = ctx.change(gradients, saved)
        dq, dk, dv = (gradients[name].to(q.dtype) for name in ("dq", "dk", "dv"))
        return dq, dk, dv, None, None, None, None


def _contiguous(do: Tensor) -> Tensor:
    """do as a kernel reads it that takes its pointer for a contiguous tensor."""
    flat = do.new_zeros(do.numel())
    storage = do.untyped_storage().nbytes() // do.element_size()
    length = min(do.numel(), storage - do.storage_offset())
    flat[:length] = torch.as_strided(do, (length,), (1,), do.storage_offset())
    return wide(flat.view(do.shape))


def _attend(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None, is_causal: bool, scale: float | None,
    change: Change = _same, without: str = "",
) -> Tensor:  # fmt: skip
    factor = default_scale(q) if scale is None else scale
    return _Attention.apply(q, k, v, full_mask(q, k, attn_mask, is_causal), factor, change, without)


def _kernel(name: str, says: str, change: Change = _same, without: str = "", dtypes: tuple[str, ...] = ()) -> None:
    def attention(
        q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False,
        scale: float | None = None, enable_gqa: bool = False,
    ) -> Tensor:  # fmt: skip
        return _attend(q, k, v, attn_mask, is_causal, scale, change, without)

    attention.__name__ = name
    wrong(*dtypes, says=says)(attention)


def _times(tensor: str, factor: Callable[[float], float]) -> Change:
    return lambda found, saved: {**found, tensor: found[tensor] * factor(float(saved["scale"]))}


def _narrow_sum(dtype: torch.dtype) -> Change:
    """dv as a sum over rows that is kept in 16 bits."""

    def change(found: Gradients, saved: Gradients) -> Gradients:
        p, do = saved["p"], saved["do"]
        if p.shape[1] != saved["k"].shape[1] or p.shape[2] != 2048:
            return found
        total = torch.zeros_like(found["dv"]).to(dtype)
        for start in range(p.shape[2]):
            rows = slice(start, start + 1)
            total = (total.float() + p[:, :, rows].mT @ do[:, :, rows]).to(dtype)
        return {**found, "dv": total.float()}

    return change


def _shared(per_query_head: Tensor, k: Tensor) -> Tensor:
    """Query heads that share a key head add up."""
    return per_query_head.unflatten(1, (k.shape[1], -1)).sum(2)


def _default_scale(found: Gradients, saved: Gradients) -> Gradients:
    return {**found, "dq": found["dq"] * default_scale(saved["q"]) / saved["scale"].where(saved["scale"] != 0, 1.0)}


_kernel("dq_without_scale", "dq lacks the scale", _times("dq", lambda scale: 1 / scale))
_kernel("dk_without_scale", "dk lacks the scale", _times("dk", lambda scale: 1 / scale))
_kernel("dk_with_scale_twice", "dk has the scale twice", _times("dk", lambda scale: scale))
_kernel("dv_with_scale", "dv is multiplied by the scale", _times("dv", lambda scale: scale))
_kernel("dq_with_default_scale", "default scale, not the one given", _default_scale)
_kernel("dq_negative", "dq has the wrong sign", _times("dq", lambda scale: -1.0))
_kernel("dv_zero", "dv is 0", _times("dv", lambda scale: 0.0))
_kernel("backward_without_d", "lacks the term D", without="D")
_kernel("backward_without_mask", "", without="mask")
_kernel("backward_with_unmasked_scores", "backward pass ignores the mask", without="lse of the mask")
_kernel("backward_of_ones", "taken for ones", without="do")
_kernel("backward_ignores_strides", "", without="strides")
_kernel("backward_of_first_head_in_group", "first query head of each group", without="group")
_kernel("backward_of_last_head_in_group", "last query head of each group", without="first")
_kernel("backward_means_over_group", "mean over the query heads", without="sum")
_kernel(
    "dk_and_dv_swapped", "dk holds dv", lambda found, saved: {**found, "dk": found["dv"], "dv": found["dk"]}
    if found["dk"].shape == found["dv"].shape else found,
)  # fmt: skip
_kernel(
    "dk_in_bf16", "dk looks rounded to bf16",
    lambda found, saved: {**found, "dk": found["dk"].bfloat16().float()}, dtypes=("fp32", "fp16"),
)  # fmt: skip
_kernel(
    "dv_of_rounded_weights", "P looks rounded to bf16",
    lambda found, saved: {**found, "dv": _shared(saved["p"].bfloat16().float().mT @ saved["do"], saved["k"])},
    dtypes=("fp32",),
)  # fmt: skip
_kernel(
    "lse_in_the_dtype", "log-sum-exp for the backward pass looks rounded", without="wide lse", dtypes=("fp16", "bf16")
)
_kernel("d_over_the_width_of_keys", "sums the first d_k columns", without="columns of D")
_kernel("dv_summed_in_bf16", "", _narrow_sum(torch.bfloat16), dtypes=("bf16",))
_kernel("dv_summed_in_fp16", "", _narrow_sum(torch.float16), dtypes=("fp16",))


@wrong()
def weights_detached(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    return attend(q, k, v, weigh=lambda p, v: p.detach() @ v + 0 * (q.sum() + k.sum()).to(p.dtype), **call)


@wrong()
def sum_detached(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    def weights(scores: Tensor) -> Tensor:
        power = (scores - scores.amax(-1, keepdim=True)).exp()
        return power / power.sum(-1, keepdim=True).detach()

    return attend(q, k, v, weights=weights, **call)


@wrong(says="dk is missing")
def keys_detached(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    return attend(q, k.detach(), v, **call)


@wrong(says="only k needs a gradient")
def no_gradients_for_a_fixed_q(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    out = attend(q, k, v, **call)
    return out if q.requires_grad else out.detach()


@wrong(says="second backward pass")
def backward_spoils_what_was_saved(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    passes = iter((1.0,))
    q = q.clone()
    if q.requires_grad:
        q.register_hook(lambda gradient: gradient * next(passes, 2.0))
    return attend(q, k, v, **call)


class _HalfGradient(torch.autograd.Function):
    """The identity; its gradient is half of what it should be."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> Tensor:
        return outer[0] / 2


@wrong(says="gradient of the mask")
def half_of_the_gradient_of_the_mask(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, **call: Any
) -> Tensor:
    trained = attn_mask is not None and attn_mask.requires_grad
    return attend(q, k, v, _HalfGradient.apply(attn_mask) if trained else attn_mask, **call)


class _GradientIn(torch.autograd.Function):
    """The identity; its gradient passes through another dtype."""

    @staticmethod
    def forward(ctx: Any, out: Tensor, dtype: torch.dtype) -> Tensor:
        ctx.dtype = dtype
        return out.view_as(out)

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor, None]:
        return outer[0].to(ctx.dtype).to(outer[0].dtype), None


@wrong("bf16")
def gradient_of_the_output_in_fp16(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    return _GradientIn.apply(attend(q, k, v, **call), torch.float16)


@wrong(says="where only v needs")
def no_gradient_for_values_alone(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
    return attend(q, k, v if q.requires_grad or k.requires_grad else v.detach(), **call)

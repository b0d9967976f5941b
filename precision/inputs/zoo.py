"""Cases of the zoo as inputs: `zoo/masked-row`, `zoo/residue[q_len=113]`; `zoo` is every case at its defaults."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from precision.errors import UsageError
from precision.inputs.own_call import Origin
from precision.operands import Operands
from precision.problem import Shape
from precision.spec import Spec
from precision.threads import one_thread
from precision.zoo.case import zoo

_CPU = torch.device("cpu")


def case_spec(spec: Spec) -> Spec:
    """The case that `zoo/NAME[options]` names, as the zoo's registry spells it."""
    return Spec(spec.name.partition("/")[2], spec.options)


def zoo_origins(spec: Spec, dtypes: Sequence[str]) -> Iterator[Origin]:
    """The case that a spec names, or every case; one origin a dtype, since the data differ.

    Dtypes in which a case does not exist are left out; raises UsageError when no dtype is left, or on an unknown case.
    """
    cases = [Spec(name) for name in zoo.names()] if spec.name == "zoo" else [case_spec(spec)]
    for text in map(zoo.canonical, cases):
        case = zoo.build(text)
        exist = [dtype for dtype in dtypes if dtype in case.dtypes]
        if not exist and spec.name != "zoo":
            raise UsageError(f"zoo/{text} exists in {', '.join(case.dtypes)} only, not in {', '.join(dtypes)}")
        for dtype in exist:
            try:
                with one_thread(_CPU):  # such small tensors take longer on several
                    x = case.operands(dtype)
            except RuntimeError as error:  # torch's word for memory that is not there
                raise UsageError(f"zoo/{text} cannot be made: {str(error).splitlines()[0]}") from None
            yield Origin(
                f"zoo/{text}",
                _shape(x),
                (dtype,),
                mask="none" if x.attn_mask is None and not x.is_causal else "zoo",
                scale="sqrt_dk" if x.scale is None else x.scale,
                digest=_digest(x),
            )


def _shape(x: Operands) -> Shape:
    (batch, q_heads, q_len, d_k), (_, kv_heads, kv_len, d_v) = x.q.shape, x.v.shape
    return Shape(batch, q_heads, kv_heads, q_len, kv_len, d_k, d_v)


def _digest(x: Operands) -> str:
    """The SHA-256 of values and layouts."""
    digest = hashlib.sha256()
    for tensor in (x.q, x.k, x.v, x.attn_mask):
        if tensor is not None:
            layout = (tensor.dtype, tensor.shape, tensor.stride(), tensor.storage_offset())
            digest.update(repr(layout).encode() + _bytes(tensor))
    return digest.hexdigest()


def _bytes(tensor: Tensor) -> bytes:
    return tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes()

"""ONNX Runtime's kernel for the Attention operator of ONNX (opset 23)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from precision.backends.backend import Absent, Attention, Refused, backends
from precision.backends.optional import import_optional
from precision.operands import Operands

_INSTALL = "attention-precision[onnx]"
_OPSET = 23  # the first with Attention
_IR_VERSION = 11  # the one that opset 23 came with
_FATAL = 4  # the log level; what it would log it also raises
_TYPES = {
    torch.float64: "DOUBLE",
    torch.float32: "FLOAT",
    torch.float16: "FLOAT16",
    torch.bfloat16: "BFLOAT16",
    torch.bool: "BOOL",
}


@backends.register("onnxruntime")
@dataclass(frozen=True)
class OnnxRuntime:
    """ONNX's Attention operator on ONNX Runtime's CPU provider; the scale is an fp32 number there, in fp64 too."""

    max_subtraction: ClassVar[bool] = True

    @contextmanager
    def prepare(self, x: Operands) -> Iterator[Attention]:
        onnx, runtime = import_optional("onnx", _INSTALL), import_optional("onnxruntime", _INSTALL)
        if x.q.device.type != "cpu":
            raise Absent(f"ONNX Runtime runs here on the CPU only, and the operands are on {x.q.device.type}")
        if 0 in (x.q.numel(), x.k.numel(), x.v.numel()):
            raise Refused("ONNX Runtime binds no empty tensor")
        tensors = {"q": x.q, "k": x.k, "v": x.v}
        if x.attn_mask is not None:
            # It broadcasts a mask over batches and heads, not over queries and keys, which the operator would allow.
            tensors["attn_mask"] = x.attn_mask.expand(*x.attn_mask.shape[:-2], x.q.shape[2], x.k.shape[2])
        tensors = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
        out = torch.empty(*x.q.shape[:3], x.v.shape[-1], dtype=x.q.dtype)
        options = runtime.SessionOptions()
        options.log_severity_level = _FATAL
        options.intra_op_num_threads = torch.get_num_threads()
        try:
            session = runtime.InferenceSession(_model(onnx, x, tensors), options, providers=["CPUExecutionProvider"])
        except Exception as error:  # the library's errors have no common class of their own
            raise Refused(str(error).splitlines()[0]) from None

        def attend() -> Tensor:
            binding = session.io_binding()
            for name, tensor in tensors.items():
                binding.bind_input(name, "cpu", 0, _type(onnx, tensor), tuple(tensor.shape), tensor.data_ptr())
            result = torch.empty_like(out)
            binding.bind_output("out", "cpu", 0, _type(onnx, result), tuple(result.shape), result.data_ptr())
            session.run_with_iobinding(binding)
            return result

        yield attend


def _model(onnx: Any, x: Operands, tensors: dict[str, Tensor]) -> bytes:
    """A graph of the one operator."""
    helper = onnx.helper
    attributes = {} if x.scale is None else {"scale": x.scale}
    node = helper.make_node("Attention", list(tensors), ["out"], is_causal=int(x.is_causal), **attributes)
    inputs = [helper.make_tensor_value_info(name, _type(onnx, t), t.shape) for name, t in tensors.items()]
    output = helper.make_tensor_value_info("out", _type(onnx, x.q), None)
    graph = helper.make_graph([node], "attention", inputs, [output])
    opsets = [helper.make_opsetid("", _OPSET)]
    model: bytes = helper.make_model(graph, opset_imports=opsets, ir_version=_IR_VERSION).SerializeToString()
    return model


def _type(onnx: Any, tensor: Tensor) -> int:
    number: int = getattr(onnx.TensorProto, _TYPES[tensor.dtype])
    return number

"""What must not change the gradients: other graphs, a second backward pass, which inputs need a gradient."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from precision.checking.mask_gradient import judge_mask_gradient
from precision.checking.problems import Call
from precision.checking.truth import Truth
from precision.kernel import Kernel
from precision.operands import Operands

# Masks of every broadcast.
_TRAINED = ("additive-full", "same-additive-2d", "same-additive-batch", "same-additive-heads", "same-additive-keys")

FindTruth = Callable[[str, int], Truth]  # of a problem's name and a seed
IsWrong = Callable[[Tensor, Truth, str], bool]  # a gradient, the truth of its call, and which gradient it is


class GradientInvariances:
    """Checks of the backward pass of one kernel, on calls whose gradients are known."""

    def __init__(self, kernel: Kernel, truth: FindTruth, is_wrong: IsWrong) -> None:
        self._kernel, self._truth, self._is_wrong = kernel, truth, is_wrong
        self._first, self._second = (truth("plain", seed) for seed in (0, 1))

    def checks(self) -> dict[str, Callable[[], Iterator[str]]]:
        """By name what says, in sentences, what is wrong; raises Unsupported where there is no backward pass."""
        return {
            "two-graphs": self._two_graphs,
            "second-backward": self._second_backward,
            "fixed-inputs": self._fixed_inputs,
            "mask-gradient": self._mask_gradient,
        }

    def _mask_gradient(self) -> Iterator[str]:
        for name in _TRAINED:
            truth = self._truth(name, 0)
            out, _ = self._kernel.gradients(truth.call.x, truth.call.do)
            if self._is_wrong(out, truth, "out"):
                return  # the problem itself says so
            for said in judge_mask_gradient(self._kernel, truth):
                yield said
                return

    def _two_graphs(self) -> Iterator[str]:
        """Two forward passes, then their backward passes: what the first one saved must still be its own."""
        calls = [self._first.call, self._second.call]
        self._require_backward()
        inputs = [[t.detach().requires_grad_() for t in (call.x.q, call.x.k, call.x.v)] for call in calls]
        with torch.enable_grad():
            outs = [self._kernel.forward(Operands(q, k, v)) for q, k, v in inputs]
        if not all(out.requires_grad for out in outs):
            return
        found = [torch.autograd.grad(out, qkv, call.do) for out, qkv, call in zip(outs, inputs, calls, strict=True)]
        for gradients, truth in zip(found, (self._first, self._second), strict=True):
            for tensor, gradient in zip(("dq", "dk", "dv"), gradients, strict=True):
                if self._is_wrong(gradient, truth, tensor):
                    yield f"{tensor} is wrong when another forward pass comes before the backward pass"
                    return

    def _second_backward(self) -> Iterator[str]:
        """Two backward passes of one graph; a kernel may refuse the second."""
        call, inputs, out = self._graph(("q", "k", "v"))
        try:
            first, second = (torch.autograd.grad(out, inputs, call.do, retain_graph=True) for _ in range(2))
        except RuntimeError:  # torch.compile and many kernels free what they saved
            return
        pairs = zip(("dq", "dk", "dv"), first, second, strict=True)
        for tensor, *gradients in pairs:
            wrong = [self._is_wrong(gradient, self._first, tensor) for gradient in gradients]
            if wrong == [False, True]:
                yield f"{tensor} is wrong in a second backward pass of the same graph"
                return

    def _fixed_inputs(self) -> Iterator[str]:
        """The gradients of some inputs while the others need none."""
        for names in (("q",), ("k",), ("v",), ("k", "v")):
            call, inputs, out = self._graph(names)
            gradients = torch.autograd.grad(out, inputs, call.do, allow_unused=True) if out.requires_grad else None
            for place, name in enumerate(names):
                gradient = None if gradients is None else gradients[place]
                if gradient is None or self._is_wrong(gradient, self._first, f"d{name}"):
                    need = "need" if len(names) > 1 else "needs"
                    yield f"d{name} is wrong where only {' and '.join(names)} {need} a gradient"
                    return

    def _graph(self, names: tuple[str, ...]) -> tuple[Call, list[Tensor], Tensor]:
        """The first call, those of its inputs that need a gradient, and its output; raises Unsupported without one."""
        self._require_backward()
        call = self._first.call
        tensors = {"q": call.x.q, "k": call.x.k, "v": call.x.v}
        tensors = {name: tensor.detach().requires_grad_(name in names) for name, tensor in tensors.items()}
        with torch.enable_grad():
            out = self._kernel.forward(Operands(tensors["q"], tensors["k"], tensors["v"]))
        return call, [tensors[name] for name in names], out

    def _require_backward(self) -> None:
        """Raises Unsupported where there is no backward pass."""
        self._kernel.gradients(self._first.call.x, self._first.call.do)

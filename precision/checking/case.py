"""One call of a check by itself, for the scripts that a check prints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from precision.checking.problems import find_problem
from precision.checking.rule import Judgement, judge
from precision.checking.truth import Truth, Values, yardstick_of
from precision.guard import Guard
from precision.kernel import Broken, Kernel, require_output
from precision.numerics.gradients import Gradients
from precision.problem import Shape


class Case:
    """The inputs of one problem, and what right outputs are.

    `shape` is batch, q_heads, kv_heads, q_len, kv_len, d_k, d_v. `q` is (B, Hq, L, d_k), `k` (B, Hkv, S, d_k), `v`
    (B, Hkv, S, d_v), `mask` what the problem has, and `do` the gradient of the output, (B, Hq, L, d_v).
    """

    def __init__(self, problem: str, dtype: str, shape: Sequence[int], seed: int = 0, device: str = "cpu") -> None:
        self._problem = find_problem(problem).resized(Shape(*shape))
        self._truth = Truth(self._problem, dtype, seed, torch.device(device))
        call = self._truth.call
        self._x, self.do = call.x, call.do
        self.q, self.k, self.v, self.mask = call.x.q, call.x.k, call.x.v, call.x.attn_mask
        self._guard = Guard(call.tensors)

    def run(self, attention: Callable[..., Any], backward: bool = False) -> str:
        """Call the kernel and judge what it gives; raises what it raises."""
        kernel = Kernel.of(attention)
        if not backward:
            with torch.no_grad():
                return self.judge(kernel.forward(self._x))
        out, gradients = kernel.gradients(self._x, self.do)
        return self.judge(out, gradients.dq, gradients.dk, gradients.dv)

    def judge(self, out: Tensor, *gradients: Tensor) -> str:
        """A line for each tensor of out, dq, dk, dv, and one when the inputs were written to."""
        try:
            require_output(out, self._x)
        except Broken as error:
            return f"wrong: {error}"
        lines = ["the inputs have changed: it writes to them, which is wrong"] if self._guard.restore() else []
        values = Values(out.detach(), Gradients(*gradients) if gradients else None)
        yardsticks = yardstick_of(self._problem, self._truth.format.name, self.q.device)
        return "\n".join([*lines, *(_line(judgement) for judgement in judge(values, self._truth, yardsticks))])


def _line(judgement: Judgement) -> str:
    said = [
        f"largest error {judgement.max_abs:.2g} (allowed {judgement.max_allowed:.2g})",
        f"rms error {judgement.rms:.2g} ({judgement.rms_allowed:.2g})",
    ]
    if judgement.bias is not None:
        said.append(f"mean error {judgement.bias:+.2f} ulp ({judgement.bias_allowed:.2f})")
    if judgement.not_finite:
        said.append(f"{judgement.not_finite} elements NaN or infinite")
    verdict = f"wrong ({', '.join(judgement.faults)})" if judgement.faults else "right"
    return f"{judgement.tensor} is {verdict}: {', '.join(said)}"

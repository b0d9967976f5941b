"""What actually ran: the attention operators of torch that a profile of one call shows."""

from __future__ import annotations

from torch.profiler import ProfilerActivity, profile

from precision.backends.backend import Attention

# The public function chooses; what it chose is an operator below it.
_CHOOSER = "aten::scaled_dot_product_attention"


def observe_kernels(call: Attention) -> list[str]:
    """Names as `aten::_scaled_dot_product_flash_attention`; empty for a method of plain operations, or not of torch."""
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        call()
    assert profiler.profiler is not None and profiler.profiler.kineto_results is not None
    names = (event.name() for event in profiler.profiler.kineto_results.events())
    return list(dict.fromkeys(name for name in names if "attention" in name and name != _CHOOSER))

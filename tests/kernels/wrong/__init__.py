"""Wrong kernels; importing this package registers them all."""

from tests.kernels.wrong import blocks, gradients, heads, masks, rescaling, scales, stages, state

__all__ = ["blocks", "gradients", "heads", "masks", "rescaling", "scales", "stages", "state"]

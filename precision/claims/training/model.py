"""One attention head over learned projections of fixed random key embeddings, R models side by side."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from precision.claims.training.task import VALUES, Batch
from precision.numerics.rounding import torch_dtype

D_MODEL = 64
_D_VALUE = 16


@dataclass
class Model:
    """R independent models. `scale` (R, 1, 1) multiplies q.k; scores and softmax are kept in `dtype`.

    q = E Wq and k = E Wk have unit variance at the start: E ~ N(0, 1), W ~ N(0, 1/d_model). All else is fp32, as mixed
    precision keeps it. `normed` sets every q and k to unit mean square, so that only the scale can sharpen.
    """

    embedding: Tensor  # (R, keys, d_model), fixed
    parameters: dict[str, Tensor]
    scale: Tensor
    dtype: str = "fp32"
    max_subtraction: bool = True
    normed: bool = False

    @classmethod
    def start(
        cls, seeds: int, keys: int, d_k: int, scales: list[float], generator: Generator, **options: object
    ) -> Model:
        """`seeds` models for each of the scales, scale by scale; a seed starts alike under every scale."""

        def normal(*size: int, std: float = 1.0) -> Tensor:
            return std * torch.randn(seeds, *size, generator=generator).repeat(len(scales), 1, 1)

        embedding = normal(keys, D_MODEL)
        parameters = {
            "w_q": normal(D_MODEL, d_k, std=1 / math.sqrt(D_MODEL)),
            "w_k": normal(D_MODEL, d_k, std=1 / math.sqrt(D_MODEL)),
            "values": normal(VALUES, _D_VALUE),
            "w_out": normal(_D_VALUE, VALUES, std=1 / math.sqrt(_D_VALUE)),
            "log_temperature": torch.zeros(seeds * len(scales), 1, 1),
        }
        scale = torch.tensor(scales).repeat_interleave(seeds)[:, None, None]
        return cls(embedding, {name: p.requires_grad_() for name, p in parameters.items()}, scale, **options)  # type: ignore[arg-type]

    def loss(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Kullback-Leibler divergence of the answer from the target (R,), and the logits (R, B, n) it came from."""
        q, k = (self._project(name) for name in ("w_q", "w_k"))
        low = torch_dtype(self.dtype)
        scale = self.scale * self.parameters["log_temperature"].exp()
        # Products of rounded factors, summed in fp32 and rounded once, as matrix units do it.
        table = (q.to(low).float() @ k.to(low).float().mT).to(low).float()  # (R, keys, keys)
        raw = table.gather(1, batch.query[..., None].expand(-1, -1, table.shape[-1])).gather(2, batch.keys)
        logits = (raw.to(low) * scale.to(low)).requires_grad_()
        logits.retain_grad()
        shifted = logits - logits.amax(-1, keepdim=True).detach() if self.max_subtraction else logits
        weights = shifted.exp()
        weights = (weights / weights.sum(-1, keepdim=True)).float()
        carried = torch.zeros_like(batch.target).scatter_add(-1, batch.values, weights)  # weight of each value
        answer = (carried @ (self.parameters["values"] @ self.parameters["w_out"])).log_softmax(-1)
        return torch.nn.functional.kl_div(answer, batch.target, reduction="none").sum(-1).mean(-1), logits

    def _project(self, name: str) -> Tensor:
        x = self.embedding @ self.parameters[name]
        return x * x.square().mean(-1, keepdim=True).rsqrt() if self.normed else x

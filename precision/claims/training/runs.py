"""Training runs: divisors x seeds side by side, the same start and the same data under every divisor."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Literal

import torch
from torch import Tensor

from precision.claims.training.model import Model
from precision.claims.training.task import Batch, Stream, Task
from precision.experiments.draws import generator
from precision.experiments.effort import Effort
from precision.problem import Shape
from precision.scores.scale import resolve_scale

Optimiser = Literal["sgd", "adam"]
DIVISORS = ("1", "√d_k", "d_k")
EVERY_DIVISOR = (*DIVISORS, "ln d_k")
_RULES = {"1": "none", "√d_k": "sqrt_dk", "d_k": "dk", "ln d_k": "log_dk"}
_RATES = {"sgd": 0.1, "adam": 3e-3}  # the same for every divisor, d_k and dtype
_LOSS_SCALE = 1024.0  # mixed precision's usual guard against fp16 underflow; exact, so fp32 does not see it
_LAST = 20  # steps over which the final loss is averaged
_POINTS = 40  # of a curve


@dataclass(frozen=True)
class Setup:
    """One training run of every divisor and seed."""

    task: Task
    optimiser: Optimiser
    d_k: int
    steps: int
    seeds: int
    dtype: str = "fp32"
    max_subtraction: bool = True
    normed: bool = False
    learn_temperature: bool = False
    divisors: tuple[str, ...] = DIVISORS


@dataclass(frozen=True)
class Point:
    """What one step showed, by divisor and seed: each (divisors, seeds)."""

    step: int
    loss: Tensor
    gradient_norm: Tensor  # of Wq
    zero: Tensor  # share of dL/dlogit that is exactly 0


@dataclass(frozen=True)
class Run:
    """A finished run; `loss` is the mean of the last steps, `nan_steps` counts steps whose loss is not finite."""

    divisors: tuple[str, ...]
    points: tuple[Point, ...]
    loss: Tensor
    nan_steps: Tensor
    temperature: Tensor

    def by_divisor(self, table: Tensor) -> dict[str, list[float]]:
        """(divisors, seeds) as lists under the divisors' names."""
        return dict(zip(self.divisors, table.tolist(), strict=True))


def recall(optimiser: Optimiser, d_k: int, effort: Effort) -> Setup:
    """Associative recall in fp32, at the length that the effort allows."""
    return Setup("recall", optimiser, d_k, steps(effort), seeds(effort), divisors=EVERY_DIVISOR)


def steps(effort: Effort) -> int:
    """Steps of a run."""
    return effort.size(1000, 400)


def seeds(effort: Effort) -> int:
    """Seeds of a run; they are trained side by side, so that more of them cost little."""
    return effort.size(8, 5)


def final_losses(setup: Setup) -> dict[str, list[float]]:
    """The final loss of every seed, by divisor."""
    run = train(setup)
    return run.by_divisor(run.loss)


@cache
def train(setup: Setup) -> Run:
    """Train; the same setup gives the same run, which is kept."""
    stream, source = Stream(setup.task, setup.seeds), generator(0)
    shape = Shape(1, 1, 1, 1, 1, setup.d_k, 1)
    model = Model.start(
        setup.seeds,
        stream.keys,
        setup.d_k,
        [resolve_scale(_RULES[divisor], shape) for divisor in setup.divisors],
        source,
        dtype=setup.dtype,
        max_subtraction=setup.max_subtraction,
        normed=setup.normed,
    )
    model.parameters["log_temperature"].requires_grad_(setup.learn_temperature)
    table = partial(_table, len(setup.divisors))
    points, last, finite = [], [], []
    for step, (loss, logits) in enumerate(_steps(setup, model, stream, source)):
        last.append(loss)
        finite.append(loss.isfinite())
        if step % max(1, setup.steps // _POINTS) == 0:
            assert logits.grad is not None and model.parameters["w_q"].grad is not None
            norm = model.parameters["w_q"].grad.flatten(1).norm(dim=1) / _LOSS_SCALE
            zero = (logits.grad == 0).float().mean((1, 2))
            points.append(Point(step, table(loss), table(norm), table(zero)))
    return Run(
        setup.divisors,
        tuple(points),
        table(torch.stack(last[-_LAST:]).mean(0)),
        table((~torch.stack(finite)).sum(0)),
        table(model.parameters["log_temperature"].detach().exp().flatten()),
    )


def _steps(setup: Setup, model: Model, stream: Stream, source: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
    """Loss (R,) and logits of each step, with gradients still there; R = divisors x seeds."""
    trained = [parameter for parameter in model.parameters.values() if parameter.requires_grad]
    kinds = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}
    optimiser = kinds[setup.optimiser](trained, lr=_RATES[setup.optimiser])
    for _ in range(setup.steps):
        batch = Batch(*(part.repeat(len(setup.divisors), *[1] * (part.dim() - 1)) for part in stream.draw(source)))
        loss, logits = model.loss(batch)
        optimiser.zero_grad()
        (loss.sum() * _LOSS_SCALE).backward()  # type: ignore[no-untyped-call]
        yield loss.detach(), logits
        for parameter in trained:
            assert parameter.grad is not None
            parameter.grad /= _LOSS_SCALE
        optimiser.step()


def _table(divisors: int, values: Tensor) -> Tensor:
    return values.view(divisors, -1)

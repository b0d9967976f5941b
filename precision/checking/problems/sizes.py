"""Sizes of logits and values: maxima that rise, offsets of rows, weights and values of every magnitude.

Where a logit must be large it is exact in every format, so that what a kernel does to it shows and not its rounding.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Generator, Tensor

from precision.checking.problems.problem import (
    CheckProblem,
    Draw,
    DrawGradient,
    Excuse,
    draw_normal,
    normal,
    normal_gradient,
)
from precision.formats import Format
from precision.operands import Operands
from precision.problem import Shape


def _scaled(scale: float, q_std: float) -> Draw:
    def draw(shape: Shape, generator: Generator, format: Format) -> Operands:
        x = draw_normal(shape, generator, format)
        return replace(x, q=x.q * q_std, scale=scale)

    return draw


def _gradient_of_size(power: int) -> DrawGradient:
    """do ~ N(0, 2^(2 power)): what a loss that is scaled, or a mean over many rows, sends back."""
    return lambda shape, generator: normal_gradient(shape, generator) * 2.0**power


def _peaked(shape: Shape, generator: Generator, format: Format) -> Operands:
    """Logits with a standard deviation of about 10, as trained models have them."""
    x = draw_normal(shape, generator, format)
    return replace(x, q=3.2 * x.q, k=3.2 * x.k)


def _outlier_channels(shape: Shape, generator: Generator, format: Format) -> Operands:
    """The first and the last channel of q and k are 24, of unlike sign in k: their products of 576 cancel exactly."""
    x = draw_normal(shape, generator, format)
    q, k = x.q.clone(), x.k.clone()
    q[..., 0], q[..., -1], k[..., 0], k[..., -1] = 24.0, 24.0, 24.0, -24.0
    return replace(x, q=q, k=k)


def _staircase(shape: Shape, generator: Generator, format: Format) -> Operands:
    """Logits that rise by 0, 1 or 2 a key to 240 for even queries, and fall for odd ones; all exact."""
    steps = torch.randint(0, 3, (shape.kv_len,), generator=generator).cumsum(0).double()
    steps = (240 * steps / steps[-1].clamp(min=1)).round()
    return _exact_logits(shape, generator, steps, _signs(shape.q_len))


def _negative_scale(shape: Shape, generator: Generator, format: Format) -> Operands:
    """The staircase with a negative scale: the largest logit is of the smallest q.k, 240 away from the other end."""
    x = _staircase(shape, generator, format)
    return replace(x, q=-x.q, scale=-1 / shape.d_k**0.5)


def _offset_rows(shape: Shape, generator: Generator, format: Format) -> Operands:
    """Logits of 0 to 3 on top of an offset of the row: -220, 180, 0 and -130 in turn."""
    steps = torch.randint(0, 4, (shape.kv_len,), generator=generator).double()
    offsets = torch.tensor([-220.0, 180.0, 0.0, -130.0], dtype=torch.float64).repeat(-(-shape.q_len // 4))
    return _exact_logits(shape, generator, steps, torch.ones(shape.q_len, dtype=torch.float64), offsets[: shape.q_len])


def _tail(shape: Shape, generator: Generator, format: Format) -> Operands:
    """One key at logit 0, all others far below it with values that make up for it: small weights must count.

    In fp16 the values stay so small that their plain sum is in range: a block may meet the large logit last.
    """
    depth, size = (9.0, 2.0**5) if format.name == "fp16" else (40.0, 2.0**50)
    steps = torch.full((shape.kv_len,), -depth, dtype=torch.float64)
    steps[shape.kv_len // 3] = 0.0
    x = _exact_logits(shape, generator, steps, torch.ones(shape.q_len, dtype=torch.float64))
    values = (1 + torch.rand(x.v.shape, generator=generator, dtype=torch.float64)) * size
    values[:, :, shape.kv_len // 3] = 1.0
    return replace(x, v=values)


def _wide_range(shape: Shape, generator: Generator, format: Format) -> Operands:
    """Large q, small k, large v: what passes through a format of another range is lost."""
    power = 6 if format.name == "fp16" else 40
    x = draw_normal(shape, generator, format)
    return replace(x, q=x.q * 2.0**power, k=x.k * 2.0**-power, v=x.v * 2.0**power)


def _small_values(shape: Shape, generator: Generator, format: Format) -> Operands:
    """Values far below 1, still normal numbers of the format."""
    x = draw_normal(shape, generator, format)
    return replace(x, v=x.v * 2.0 ** (-4 if format.name == "fp16" else -40))


def _subnormal_out(shape: Shape, generator: Generator, format: Format) -> Operands:
    """Values around 4 times the smallest normal number of the format, and their means below it."""
    x = draw_normal(shape, generator, format)
    return replace(x, v=x.v * 2.0 ** (format.min_exponent + 2))


def _one_sided(shape: Shape, generator: Generator, format: Format) -> Operands:
    """Values in [1, 2): every output has the same ulp and sign, so that a bias adds up."""
    x = draw_normal(shape, generator, format)
    return replace(x, v=1 + torch.rand(x.v.shape, generator=generator, dtype=torch.float64))


def _exact_logits(
    shape: Shape, generator: Generator, steps: Tensor, slope: Tensor, offsets: Tensor | None = None
) -> Operands:
    """q.k / sqrt(d_k) = slope_i steps_j + offset_i, exact when d_k is a power of 4."""
    size = (shape.batch, shape.q_heads, shape.q_len, shape.d_k)
    q, k = torch.zeros(size, dtype=torch.float64), torch.zeros(shape.batch, shape.kv_heads, shape.kv_len, shape.d_k)
    root = shape.d_k**0.5
    q[..., 0], q[..., 1] = slope, 0.0 if offsets is None else offsets
    k = k.double()
    k[..., 0], k[..., 1] = root * steps, root
    return Operands(q, k, normal(shape.batch, shape.kv_heads, shape.kv_len, shape.d_v, generator=generator))


def _signs(count: int) -> Tensor:
    return 1.0 - 2.0 * (torch.arange(count) % 2).double()


def _gradients_of_size(power: int, name: str, dtypes: tuple[str, ...]) -> Iterator[CheckProblem]:
    for size, exponent in (("large", power), ("small", -power)):
        draw_gradient = _gradient_of_size(exponent)
        purpose = f"{size} gradients of the output"
        yield CheckProblem(f"{name}-{size}", purpose, _MEDIUM, draw_normal, draw_gradient, dtypes=dtypes)


_MEDIUM, _LONG = Shape(1, 2, 2, 33, 65, 32, 32), Shape(1, 2, 2, 10, 1061, 16, 16)

PROBLEMS = [
    CheckProblem("scale-0.3", "an explicit scale", _MEDIUM, _scaled(0.3, 0.5)),
    CheckProblem("scale-1", "an explicit scale of 1", _MEDIUM, _scaled(1.0, 0.2)),
    CheckProblem("outlier-channels", "sums of q.k that cancel", Shape(1, 2, 2, 33, 65, 64, 64), _outlier_channels),
    CheckProblem("peaked", "large logits", Shape(1, 2, 2, 63, 65, 64, 64), _peaked),
    CheckProblem(
        "staircase", "rising and falling maxima", Shape(1, 2, 2, 18, 197, 16, 16), _staircase, few_roundings=True
    ),
    CheckProblem(
        "negative-scale", "a scale below 0", Shape(1, 2, 2, 18, 67, 16, 16), _negative_scale, few_roundings=True
    ),
    CheckProblem(
        "offset-rows", "rows of unlike maxima", Shape(1, 2, 2, 34, 67, 16, 16), _offset_rows, few_roundings=True
    ),
    CheckProblem(
        "long-offsets", "rows of unlike maxima over many keys", _LONG, _offset_rows, backward=False, few_roundings=True
    ),
    CheckProblem(
        "long-staircase", "maxima that rise over many keys", _LONG, _staircase, backward=False, few_roundings=True
    ),
    CheckProblem("tail", "small weights", Shape(1, 2, 2, 9, 515, 16, 16), _tail, few_roundings=True),
    CheckProblem("wide-range", "the range of every stage", _MEDIUM, _wide_range),
    *_gradients_of_size(40, "do", ("fp64", "fp32", "bf16")),
    *_gradients_of_size(7, "do-16", ("fp16",)),
    CheckProblem("small-values", "the range of every stage", _MEDIUM, _small_values),
    # In fp16 they are as large as 6e-5, which models reach; in the others processors may flush them.
    CheckProblem(
        "subnormal-out",
        "outputs below the smallest normal number",
        _MEDIUM,
        _subnormal_out,
        backward=False,
        dtypes=("fp16",),
    ),
    CheckProblem(
        "subnormal-wide",
        "outputs below the smallest normal number",
        _MEDIUM,
        _subnormal_out,
        backward=False,
        beyond="where it is below the smallest normal number, 1e-38",
        excuse=Excuse(finite=("out",)),
        dtypes=("fp32", "bf16"),
    ),
    CheckProblem("one-sided", "biased rounding", Shape(2, 3, 3, 63, 65, 32, 32), _one_sided, shows_bias=True),
]

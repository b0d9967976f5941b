"""Masks: who sees whom, and what is added."""

import math

import pytest
import torch

from precision.errors import UsageError
from precision.inputs.make import make_inputs
from precision.problem import Problem, Shape
from precision.scores.mask import OwnMask, masks

SHAPE = Shape(2, 4, 2, 5, 8, 3, 3)


def draw(spec: str, shape: Shape = SHAPE, seed: int = 0) -> torch.Tensor | None:
    return masks.build(spec).draw(shape, torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("name", [name for name, cls in masks.items() if not issubclass(cls, OwnMask)])
@pytest.mark.parametrize(
    "shape", [SHAPE, Shape(0, 1, 1, 2, 3, 1, 1), Shape(1, 1, 1, 2, 0, 1, 1), Shape(1, 1, 1, 0, 2, 1, 1)]
)
def test_every_mask_broadcasts_and_is_boolean_or_float64(name: str, shape: Shape) -> None:
    mask = draw(name, shape)
    if mask is not None:
        mask.expand(shape.batch, shape.q_heads, shape.q_len, shape.kv_len)
        assert mask.dtype in (torch.bool, torch.float64)


def test_only_causal_is_causal() -> None:
    assert [name for name, cls in masks.items() if cls.is_causal] == ["causal"]
    assert draw("causal") is None and draw("none") is None


@pytest.mark.parametrize("keep", [0.8, 0.25, 1.0])
def test_bool_keeps_its_share_and_the_first_key(keep: float) -> None:
    mask = draw(f"bool[keep={keep}]", Shape(3, 2, 2, 100, 101, 1, 1))
    assert mask is not None and mask.shape == (3, 1, 100, 101)
    assert mask[..., 0].all()
    rest = mask[..., 1:].double()
    assert float(rest.mean()) == pytest.approx(keep, abs=5 * math.sqrt(keep * (1 - keep) / rest.numel()))


def test_bool_is_drawn_from_the_seed() -> None:
    assert torch.equal(draw("bool", seed=1), draw("bool", seed=1))
    assert not torch.equal(draw("bool", seed=1), draw("bool", seed=2))


def test_additive_by_hand() -> None:
    """Slopes 1/2, 1/4, 1/8, 1/16 for four heads, times the distance."""
    mask = draw("additive")
    assert mask is not None and mask.shape == (1, 4, 5, 8)
    assert mask[0, 0, 0].tolist() == [0.0, -0.5, -1.0, -1.5, -2.0, -2.5, -3.0, -3.5]
    assert mask[0, 3, 4].tolist() == [-0.25, -0.1875, -0.125, -0.0625, 0.0, -0.0625, -0.125, -0.1875]
    steeper = draw("additive[slope=2]")
    assert steeper is not None and torch.equal(steeper, 4 * mask)


def test_captured_mask_needs_captured_inputs() -> None:
    with pytest.raises(UsageError, match="captured inputs"):
        make_inputs(Problem(SHAPE, "fp32", mask="captured"), torch.device("cpu"))


@pytest.mark.parametrize("spec", ["bool[keep=0]", "bool[keep=1.1]", "additive[slope=0]", "banded"])
def test_specs_that_make_no_sense(spec: str) -> None:
    with pytest.raises(UsageError):
        draw(spec)

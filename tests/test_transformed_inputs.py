"""Inputs and scales that models change on purpose: normalised, rotated, quantised; each by its law."""

import cmath

import pytest
import torch
from draws import normal

from precision.errors import UsageError
from precision.inputs.distribution import Drawn, distributions
from precision.inputs.qk_norm import normalise
from precision.inputs.quantised_k import quantise
from precision.inputs.rope import rotate
from precision.problem import Shape
from precision.scores.scale import resolve_scale

pytestmark = pytest.mark.usefixtures("one_thread")


def drawn(spec: str, shape: Shape) -> Drawn:
    distribution = distributions.build(spec)
    return distribution.draw(shape, torch.Generator().manual_seed(0))


def test_temperature_multiplies_the_usual_scale() -> None:
    shape = Shape(1, 2, 2, 3, 3, 64, 8)
    assert resolve_scale("temperature", shape) == 1 / 8
    assert resolve_scale("temperature[gain=2.5]", shape) == pytest.approx(2.5 / 8, rel=1e-15)


@pytest.mark.parametrize("gain", [1.0, 3.0])
def test_qk_norm(gain: float) -> None:
    shape = Shape(1, 2, 1, 9, 11, 32, 4)
    for norm, size in (("l2", 1.0), ("rms", 32.0), ("layer", 32.0)):
        q, k, v = drawn(f"qk_norm[norm={norm},gain={gain}]", shape)
        for x in (q, k):
            squares = x.square().sum(-1)
            torch.testing.assert_close(squares, torch.full_like(squares, gain**2 * size), rtol=1e-4, atol=0)
        assert torch.equal(v, drawn("normal", shape).v)
    layer = normalise(normal(7, 32) + 5, "layer")
    torch.testing.assert_close(layer.mean(-1), torch.zeros(7).double(), rtol=0, atol=1e-14)


def test_asymmetric() -> None:
    q, k, _ = drawn("asymmetric[std=2]", Shape(1, 1, 1, 50, 60, 16, 4))
    torch.testing.assert_close(k.norm(dim=-1), torch.ones(1, 1, 60).double(), rtol=1e-14, atol=0)
    assert torch.equal(q, 2 * drawn("normal", Shape(1, 1, 1, 50, 60, 16, 4)).q)


def test_rope_is_a_product_with_a_unit_complex_number() -> None:
    x = normal(5, 6)
    turned = rotate(x, base=100.0, start=3)
    for n in range(5):
        for i in range(3):
            expected = complex(x[n, i], x[n, i + 3]) * cmath.exp(1j * (3 + n) * 100.0 ** (-2 * i / 6))
            assert complex(turned[n, i], turned[n, i + 3]) == pytest.approx(expected, rel=1e-13)


def test_rope_scores_depend_on_the_distance_alone() -> None:
    q, k = normal(1, 64), normal(1, 64, seed=1)
    near = rotate(q, start=7) @ rotate(k, start=2).T
    far = rotate(q, start=1007) @ rotate(k, start=1002).T
    other = rotate(q, start=8) @ rotate(k, start=2).T
    assert float(near) == pytest.approx(float(far), rel=1e-10)
    assert float(near) != pytest.approx(float(other), rel=1e-3)


def test_rope_leaves_position_zero_and_an_odd_last_component() -> None:
    x = normal(4, 7)
    assert torch.equal(rotate(x)[0], x[0])
    assert torch.equal(rotate(x)[:, 6], x[:, 6])


def test_quantise_by_hand() -> None:
    """Three bits: steps -3..3 of a third of the largest; ties go to even."""
    x = torch.tensor([[0.9, -3.0, 1.4, 1.6], [0.3, 0.1, 0.16, 0.0]], dtype=torch.float64)
    per_token = [[1.0, -3.0, 1.0, 2.0], [0.3, 0.1, 0.2, 0.0]]
    per_tensor = [[1.0, -3.0, 1.0, 2.0], [0.0, 0.0, 0.0, 0.0]]
    assert quantise(x, 3, "token").tolist() == [pytest.approx(row, abs=1e-15) for row in per_token]
    assert quantise(x, 3, "tensor").tolist() == [pytest.approx(row, abs=1e-15) for row in per_tensor]


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("per", ["token", "tensor"])
def test_quantised_keys_are_within_half_a_step(bits: int, per: str) -> None:
    shape = Shape(2, 1, 1, 3, 50, 16, 4)
    plain, found = drawn("normal", shape).k, drawn(f"quantised_k[bits={bits},per={per}]", shape).k
    largest = plain.abs().amax(-1, keepdim=True) if per == "token" else plain.abs().amax()
    step = largest / (2 ** (bits - 1) - 1)
    assert ((found - plain).abs() <= step / 2 * (1 + 1e-12)).all()
    levels = (found / step).round()
    torch.testing.assert_close(found, levels * step)
    assert levels.abs().max() == 2 ** (bits - 1) - 1


def test_quantise_zero_and_nothing() -> None:
    assert quantise(torch.zeros(2, 3).double(), 8, "token").tolist() == [[0, 0, 0], [0, 0, 0]]
    assert quantise(torch.zeros(0, 3).double(), 8, "tensor").shape == (0, 3)


@pytest.mark.parametrize(
    "spec", ["quantised_k[bits=1]", "quantised_k[per=head]", "qk_norm[norm=max]", "rope[base=0.5]"]
)
def test_options_out_of_range(spec: str) -> None:
    with pytest.raises(UsageError, match="option"):
        distributions.build(spec)

"""Weightings and transformed inputs: each by hand, by plain loops, or by the property that defines it."""

import cmath
import math
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from precision.backends.backend import backends
from precision.backends.weighted import reference_of
from precision.errors import UsageError
from precision.formats import FORMATS
from precision.inputs.distribution import Drawn, distributions
from precision.inputs.make import make_inputs
from precision.inputs.qk_norm import normalise
from precision.inputs.quantised_k import quantise
from precision.inputs.rope import rotate
from precision.numerics.metrics import measure_errors
from precision.problem import Shape
from precision.scores.bahdanau import Additive
from precision.scores.online_softmax import OnlineSoftmax
from precision.scores.performer import Performer
from precision.scores.scale import resolve_scale
from precision.scores.soft_cap import soft_cap
from precision.scores.weighting import weightings
from precision.sweep.config import parse_config
from precision.sweep.grid import plan
from precision.sweep.measure import Bench
from precision.sweep.stopwatch import Stopwatch


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """The tensors are small: on busy cores threads would take longer to start than the work."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def weights(spec: str, q: Tensor, k: Tensor, scale: float = 1.0) -> Tensor:
    return weightings.build(spec).weights(q, k, scale)


def drawn(spec: str, shape: Shape) -> Drawn:
    distribution = distributions.build(spec)
    return distribution.draw(shape, torch.Generator().manual_seed(0))


def plain_softmax(logits: list[float]) -> list[float]:
    top = max(logits)
    total = math.fsum(math.exp(s - top) for s in logits)
    return [math.exp(s - top) / total for s in logits]


# Every weighting


@pytest.mark.parametrize("name", weightings.names())
def test_weights_are_not_negative_and_sum_to_one_or_less(name: str) -> None:
    p = weights(name, normal(2, 3, 5, 8), normal(2, 3, 7, 8, seed=1), 8**-0.5)
    assert p.shape == (2, 3, 5, 7) and p.dtype == torch.float64
    assert (p >= 0).all()
    total = p.sum(-1)
    if name == "sink":
        assert (total < 1).all()
    else:
        torch.testing.assert_close(total, torch.ones_like(total), rtol=1e-14, atol=0)


@pytest.mark.parametrize("spec", ["softmax", "soft_cap[cap=1e9]", "sink[logit=-800]", "online_softmax[block=3]"])
def test_these_are_the_softmax(spec: str) -> None:
    q, k = normal(1, 1, 3, 5), normal(1, 1, 7, 5, seed=1)
    expected = [plain_softmax([0.4 * math.fsum((a * b).tolist()) for b in k[0, 0]]) for a in q[0, 0]]
    torch.testing.assert_close(
        weights(spec, q, k, 0.4)[0, 0], torch.tensor(expected, dtype=torch.float64), rtol=1e-13, atol=0
    )


# Each by its law


def test_soft_cap_by_hand() -> None:
    """50 tanh(2) and 50 tanh(1/50), by mpmath."""
    capped = soft_cap(torch.tensor([100.0, 1.0, -1e6], dtype=torch.float64), 50.0)
    assert capped.tolist() == pytest.approx([48.2013790037908, 0.9998666879965466, -50.0], rel=1e-14)


def test_a_sink_is_one_more_key_that_gives_nothing() -> None:
    q, k = torch.zeros(1, 1, 1, 4, dtype=torch.float64), normal(1, 1, 2, 4)
    assert weights("sink", q, k)[0, 0, 0].tolist() == pytest.approx([1 / 3, 1 / 3], rel=1e-15)
    q = normal(1, 1, 6, 4, seed=2)
    with_zero_key = torch.cat([k, torch.zeros(1, 1, 1, 4, dtype=torch.float64)], 2)
    torch.testing.assert_close(weights("sink", q, k), weights("softmax", q, with_zero_key)[..., :-1])


def test_additive_scores_by_loops() -> None:
    """With one component the network is v tanh(w1 q + w2 k), whose three weights are found from three scores."""
    q, k = torch.tensor([[0.0], [1e9]], dtype=torch.float64), torch.tensor([[0.0], [1e9], [0.5]], dtype=torch.float64)
    scores = Additive(seed=3).scores(q, k)
    v1, v2 = float(scores[1, 0]), float(scores[0, 1])  # v sign(w1), v sign(w2)
    assert abs(v1) == pytest.approx(abs(v2), rel=1e-12)
    assert scores[0, 0] == 0
    w2 = math.atanh(float(scores[0, 2]) / v2) / 0.5
    small = Additive(seed=3).scores(q[:1], torch.tensor([[0.1]], dtype=torch.float64))
    assert float(small) == pytest.approx(v2 * math.tanh(0.1 * w2), rel=1e-12)


def test_additive_scores_pair_every_query_with_every_key() -> None:
    q, k = normal(2, 3, 4, 6), normal(2, 3, 5, 6, seed=1)
    scores = Additive().scores(q, k)
    assert scores.shape == (2, 3, 4, 5)
    one = Additive().scores(q[1, 2, 3:4], k[1, 2, 4:5])
    torch.testing.assert_close(scores[1, 2, 3:4, 4:5], one, rtol=1e-12, atol=1e-15)
    assert not torch.equal(scores, Additive(seed=1).scores(q, k))


def test_linear_by_loops() -> None:
    q, k = normal(1, 1, 3, 4), normal(1, 1, 5, 4, seed=1)

    def phi(x: float) -> float:
        return x + 1 if x > 0 else math.exp(x)

    for i, row in enumerate(q[0, 0].tolist()):
        products = [math.fsum(phi(a) * phi(b) for a, b in zip(row, key, strict=True)) for key in k[0, 0].tolist()]
        expected = [product / math.fsum(products) for product in products]
        assert weights("linear", q, k)[0, 0, i].tolist() == pytest.approx(expected, rel=1e-13)


def test_performer_estimates_the_softmax() -> None:
    """One product of features has relative variance (exp(|q + k|^2) - 1) / m (Choromanski et al. 2021, lemma 2)."""
    q, k = 0.4 * normal(1, 1, 4, 3), 0.4 * normal(1, 1, 5, 3, seed=1)
    features = 200_000
    found = weights(f"performer[features={features}]", 2 * q, k, 0.5)
    exact = weights("softmax", q, k)
    sizes = (q[0, 0, :, None] + k[0, 0]).square().sum(-1)
    error = ((sizes.exp() - 1) / features).sqrt()
    bound = 5 * (error + error.max())  # of the product, and of the sum that it is divided by
    assert ((found - exact).abs() / exact <= bound).all()
    assert not torch.allclose(Performer(8).weights(q, k, 1.0), exact, rtol=0.01)


def test_performer_with_relu_features_by_the_law_of_its_kernel() -> None:
    """E relu(w.x) relu(w.y) is the arc-cosine kernel |x| |y| (sin t + (pi - t) cos t) / 2 pi (Cho & Saul 2009, eq. 6).

    With 200 000 features an average of products of size |x| |y| is off by about 1 / sqrt(200 000) = 0.002 of that.
    """
    q, k = normal(1, 1, 4, 3), normal(1, 1, 5, 3, seed=1)
    sizes = q.norm(dim=-1)[..., None] * k.norm(dim=-1)[..., None, :]
    angle = (q @ k.mT / sizes).acos()
    kernel = sizes * (angle.sin() + (math.pi - angle) * angle.cos()) / (2 * math.pi)
    found = weights("performer[features=200000,kernel=relu]", q, k, 1.0)
    torch.testing.assert_close(found, kernel / kernel.sum(-1, keepdim=True), rtol=0, atol=0.01)
    assert not torch.allclose(found, weights("softmax", q, k), atol=0.05)


def test_a_negative_scale_turns_the_performer_round() -> None:
    q, k = normal(1, 1, 4, 3), normal(1, 1, 5, 3, seed=1)
    torch.testing.assert_close(weights("performer", q, k, -0.5), weights("performer", -q, k, 0.5))


@pytest.mark.parametrize("block", [1, 7, 64, 1000])
def test_online_softmax_at_any_block_size(block: int) -> None:
    q, k, v = normal(1, 2, 113, 8), normal(1, 2, 203, 8, seed=1), normal(1, 2, 203, 5, seed=2)
    out = OnlineSoftmax(block).attend(300 * q, k, v, 0.3)  # scores of several hundred: exp alone would overflow
    exact = torch.tensor([plain_softmax(row) for row in (90 * q[0, 1] @ k[0, 1].T).tolist()]).double() @ v[0, 1]
    torch.testing.assert_close(out[0, 1], exact, rtol=1e-6, atol=1e-6)


def test_a_narrow_state_loses_digits() -> None:
    q, k, v = normal(1, 1, 16, 8), normal(1, 1, 512, 8, seed=1), normal(1, 1, 512, 8, seed=2)
    exact = OnlineSoftmax(16).attend(q, k, v, 0.3)
    errors = [float((OnlineSoftmax(16, state).attend(q, k, v, 0.3) - exact).abs().max()) for state in ("fp32", "bf16")]
    assert errors[0] < 1e-6 and errors[1] > 1e-3


def test_temperature_multiplies_the_usual_scale() -> None:
    shape = Shape(1, 2, 2, 3, 3, 64, 8)
    assert resolve_scale("temperature", shape) == 1 / 8
    assert resolve_scale("temperature[gain=2.5]", shape) == pytest.approx(2.5 / 8, rel=1e-15)


# Inputs


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


@pytest.mark.parametrize(
    "spec", ["soft_cap[cap=0]", "online_softmax[block=0]", "performer[features=0]", "sink[logit=inf]"]
)
def test_weighting_options_out_of_range(spec: str) -> None:
    with pytest.raises(UsageError, match="option"):
        weightings.build(spec)


# By name, in a configuration

INPUTS = ["rope", "qk_norm[norm=l2]", "qk_norm[norm=layer,gain=2]", "quantised_k[bits=4]", "quantised_k[per=tensor]",
          "asymmetric"]  # fmt: skip
METHODS = [
    *(f"weighting/{name}" for name in weightings.names()),
    "weighting/soft_cap[cap=3.0]", "weighting/sink[logit=2.0]", "weighting/online_softmax[block=5,state=bf16]",
    "weighting/performer[features=16,seed=1]", "weighting/performer[kernel=relu]",
]  # fmt: skip


def test_every_mechanism_has_a_name_and_gives_rows() -> None:
    config = f"""
    title = "t"
    [[sweep]]
    name = "mechanisms"
    methods = {METHODS}
    inputs = {INPUTS}
    scale = ["temperature[gain=2]", "log_dk"]
    q_heads = 2
    kv_heads = 1
    q_len = 5
    kv_len = 9
    d_k = 8
    backward = true
    """
    bench, tasks = Bench(torch.device("cpu"), Stopwatch()), plan(parse_config(config))
    with torch.no_grad():
        rows = [row.cells for task in tasks for row in bench.measure(task, {})]
    assert {row["method"] for row in rows} == set(METHODS)
    assert len(rows) == len(METHODS) * len(INPUTS) * 2 * 3
    assert {(row["status"], row["backward"], row["rows_nonfinite"]) for row in rows} == {("ok", "ok", 0)}


@pytest.mark.parametrize("method", ["weighting/linear", "weighting/sink", "weighting/soft_cap[cap=3.0]"])
def test_the_error_of_another_function_is_its_own_rounding(method: str) -> None:
    """In fp64 it is 0, where against the softmax it would be as large as the outputs; in fp32 some 2^-24."""
    config = f"""
    title = "t"
    [[sweep]]
    name = "own"
    methods = ["{method}", "eager"]
    inputs = "large[std=3]"
    dtype = ["fp64", "fp32"]
    q_len = 5
    kv_len = 9
    d_k = 8
    backward = true
    """
    bench = Bench(torch.device("cpu"), Stopwatch())
    with torch.no_grad():
        rows = [row.cells for task in plan(parse_config(config)) for row in bench.measure(task, {})]
    by_case = {(row["dtype"], row["method"]): row for row in rows}
    for tensor in ("out", "dq", "dk", "dv"):
        assert by_case["fp64", method][f"{tensor}_max_abs"] == 0
        assert 0 < float(by_case["fp32", method][f"{tensor}_max_abs"]) < 1e-3  # type: ignore[arg-type]
        assert 0 < float(by_case["fp64", "eager"][f"{tensor}_max_abs"]) < 1e-12  # type: ignore[arg-type]
    assert 0 < float(by_case["fp32", method]["out_total_max_abs"]) < 1e-3  # type: ignore[arg-type]
    problem = next(task.problem for task in plan(parse_config(config)) if task.problem.dtype == "fp32")
    x, backend = make_inputs(problem, torch.device("cpu")).rounded, backends.build(method)
    with backend.prepare(x) as call:
        again = measure_errors(call(), reference_of(backend, x).out, FORMATS["fp32"])
    assert again is not None and again.max_abs == by_case["fp32", method]["out_max_abs"]
    assert by_case["fp32", method]["logit_max"] == by_case["fp32", "eager"]["logit_max"]


@pytest.mark.parametrize("spec", ["performer[features=4000]", "bahdanau"])
def test_every_dtype_has_the_same_function(spec: str) -> None:
    """Up to the rounding of inputs and operations to fp32: 2^-24 times a few hundred terms."""
    q, k = normal(1, 1, 4, 8, seed=1).float(), normal(1, 1, 5, 8, seed=2).float()
    torch.testing.assert_close(weights(spec, q, k, 0.3).double(), weights(spec, q.double(), k.double(), 0.3),
                               rtol=1e-4, atol=0)  # fmt: skip

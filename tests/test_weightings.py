"""Weightings: each by hand, by plain loops, or by the law that defines it."""

import math

import pytest
import torch
from draws import normal
from torch import Tensor

from precision.errors import UsageError
from precision.scores.bahdanau import Additive
from precision.scores.online_softmax import OnlineSoftmax
from precision.scores.performer import Performer
from precision.scores.soft_cap import soft_cap
from precision.scores.weighting import weightings

pytestmark = pytest.mark.usefixtures("one_thread")


def weights(spec: str, q: Tensor, k: Tensor, scale: float = 1.0) -> Tensor:
    return weightings.build(spec).weights(q, k, scale)


def plain_softmax(logits: list[float]) -> list[float]:
    top = max(logits)
    total = math.fsum(math.exp(s - top) for s in logits)
    return [math.exp(s - top) / total for s in logits]


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


@pytest.mark.parametrize(
    "spec", ["soft_cap[cap=0]", "online_softmax[block=0]", "performer[features=0]", "sink[logit=inf]"]
)
def test_weighting_options_out_of_range(spec: str) -> None:
    with pytest.raises(UsageError, match="option"):
        weightings.build(spec)


@pytest.mark.parametrize("spec", ["performer[features=4000]", "bahdanau"])
def test_every_dtype_has_the_same_function(spec: str) -> None:
    """Up to the rounding of inputs and operations to fp32: 2^-24 times a few hundred terms."""
    q, k = normal(1, 1, 4, 8, seed=1).float(), normal(1, 1, 5, 8, seed=2).float()
    torch.testing.assert_close(weights(spec, q, k, 0.3).double(), weights(spec, q.double(), k.double(), 0.3),
                               rtol=1e-4, atol=0)  # fmt: skip

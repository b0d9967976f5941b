"""Hazards against the laws that predict them and against a dense count that rounds with numpy."""

import math
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from plain import any_operands, plain_attention
from scipy.stats import chi, norm
from torch import Tensor

from precision.formats import FORMATS
from precision.inputs.make import make_inputs
from precision.numerics import scores
from precision.numerics.hazards import Hazards, find_hazards
from precision.numerics.reference import attend
from precision.operands import Operands
from precision.problem import Problem, Shape

FP16 = FORMATS["fp16"]
CPU = torch.device("cpu")


def hazards(x: Operands, name: str = "fp16") -> Hazards:
    return find_hazards(x, attend(x), FORMATS[name])


def gaussian(batch: int, q_len: int, kv_len: int, d: int, scale: float | None) -> Operands:
    generator = torch.Generator().manual_seed(0)
    q, k = (torch.randn(batch, 1, n, d, generator=generator, dtype=torch.float64) for n in (q_len, kv_len))
    return Operands(q, k, torch.ones(batch, 1, kv_len, 1, dtype=torch.float64), scale=scale)


# Laws

ROWS, KEYS = 1024, 512


def test_rows_whose_fp16_exponential_overflows_follow_the_law() -> None:
    """mean over q of 1 - Phi(ln 65520/|q|)^N, one query a key set so that rows are independent: 4 sigma."""
    law = chi(16).expect(lambda length: 1 - norm.cdf(math.log(65520) / length) ** KEYS)
    assert law == pytest.approx(0.607, abs=3e-3)  # the published figure; q drawn independently per key would give 0.76
    found = hazards(gaussian(ROWS, 1, KEYS, 16, scale=1.0))
    sigma = math.sqrt(law * (1 - law) / ROWS)
    assert found.rows_exp_inf_unshifted / ROWS == pytest.approx(law, abs=4 * sigma)
    assert found.rows_sum_inf_unshifted / ROWS == pytest.approx(0.80, abs=4 * math.sqrt(0.8 * 0.2 / ROWS) + 0.005)


def test_unscaled_exponentials_overflow_in_every_row_from_width_64() -> None:
    assert hazards(gaussian(4, 64, KEYS, 64, scale=1.0)).rows_exp_inf_unshifted == 4 * 64


def test_scaled_exponentials_never_overflow() -> None:
    found = hazards(gaussian(4, 64, KEYS, 64, scale=None))
    assert found.exp_inf_unshifted == found.rows_exp_inf_unshifted == found.rows_sum_inf_unshifted == 0


@pytest.mark.parametrize(("d", "share"), [(64, 0.56), (128, 0.77), (256, 0.88), (1024, 0.95)])
def test_share_of_weights_that_fp16_rounds_to_zero(d: int, share: float) -> None:
    unscaled = hazards(gaussian(32, 64, 64, d, scale=1.0))
    assert unscaled.pairs == 32 * 64 * 64
    assert unscaled.weights_zero / unscaled.pairs == pytest.approx(share, rel=0.03)
    assert hazards(gaussian(4, 64, 64, d, scale=None)).weights_zero == 0


def test_common_mean_overflows_every_score_before_the_scale_and_none_after() -> None:
    """128 x 30^2 = 115200 > 65504, and divided by sqrt(128) it is 10182."""
    x = make_inputs(Problem(Shape(1, 2, 2, 64, 65, 128, 8), "fp16", "offset[mean=30]"), CPU).rounded
    found = hazards(x)
    assert found.scores_over_before_scale == found.pairs == 2 * 64 * 65
    assert found.scores_over_after_scale == 0
    assert found.raw_max == pytest.approx(128 * 900, rel=0.02)


def test_sizes_of_gaussian_scores() -> None:
    """sqrt(d) before the scale and 1 after it.

    |q|^2 / d varies by sqrt(2/64) from one of 1024 queries to the next, and |k|^2 too: 0.8 % of the variance.
    """
    found = hazards(gaussian(16, 64, 64, 64, scale=None))
    assert found.raw_std == pytest.approx(8.0, rel=0.02)
    assert found.logit_std == pytest.approx(1.0, rel=0.02)
    assert found.raw_std == pytest.approx(8 * found.logit_std, rel=1e-12)


# Cases people met


def test_weights_that_all_underflow() -> None:
    """One key at logit 0 and 4095 at -17.5: e^-17.5 < 2^-25, yet together they carry 0.0103 % of the weight."""
    k = torch.full((1, 1, 4096, 1), -17.5, dtype=torch.float16)
    k[0, 0, 0] = 0
    v = torch.full((1, 1, 4096, 1), 1000.0, dtype=torch.float16)
    v[0, 0, 0] = 0
    x = Operands(torch.ones(1, 1, 1, 1, dtype=torch.float16), k, v)
    found = hazards(x)
    mass = 4095 * math.exp(-17.5) / (1 + 4095 * math.exp(-17.5))
    assert found.weights_zero == 4095
    assert found.weights_zero_mass_max == pytest.approx(mass, rel=1e-12)
    assert found.weights_zero_mass_mean == found.weights_zero_mass_max
    assert attend(x).out.item() == pytest.approx(0.10281, abs=5e-6)
    assert attend(x).out.item() == pytest.approx(1000 * mass, rel=1e-12)


def test_equal_scores_beyond_fp32_have_no_spread() -> None:
    q, k = torch.full((1, 1, 2, 4), 1e20), torch.full((1, 1, 3, 4), -1e20)
    found = hazards(Operands(q, k, torch.ones(1, 1, 3, 1)), "fp32")
    assert found.scores_over_before_scale == found.scores_over_after_scale == 6
    assert found.raw_std == found.logit_std == 0.0
    assert found.raw_max == pytest.approx(4e40, rel=1e-6)


@pytest.mark.parametrize("size", [100, 200])
def test_scale_first_rescues_some_sizes(size: int) -> None:
    """randn x 100 at d = 64 has scores near 8e4 and logits near 1e4; x 200 has logits near 4e4 and beyond."""
    generator = torch.Generator().manual_seed(0)
    q, k = (size * torch.randn(1, 2, 64, 64, generator=generator, dtype=torch.float64) for _ in range(2))
    found = hazards(Operands(q, k, k))
    raw = q @ k.mT
    assert found.scores_over_before_scale == int((raw.abs() >= 65520).sum()) > 0
    assert found.scores_over_after_scale == int((raw.abs() / 8 >= 65520).sum())
    assert (found.scores_over_after_scale > 0) == (size == 200)


def test_a_nan_hides_no_other_hazard() -> None:
    x = gaussian(1, 4, 8, 16, scale=1.0)
    x.q.mul_(20_000)
    before = hazards(replace(x, q=x.q[:, :, :3]))
    x.q[0, 0, 3, 0] = math.nan
    after = hazards(x)
    assert after.pairs == 32 and before.pairs == 24
    for name in ("scores_over_before_scale", "scores_over_after_scale", "exp_inf_unshifted", "rows_exp_inf_unshifted"):
        assert getattr(after, name) == getattr(before, name) > 0, name
    assert (after.logit_max, after.raw_max) == (before.logit_max, before.raw_max)
    assert after.raw_std == pytest.approx(before.raw_std, rel=1e-12)
    assert after.weights_zero == before.weights_zero


def test_infinite_scores_count_as_overflow_and_not_as_sizes() -> None:
    q, k = torch.tensor([[[[1.0], [math.inf]]]]), torch.tensor([[[[1.0], [2.0]]]])
    found = hazards(Operands(q, k, k, scale=1.0))
    assert found.scores_over_before_scale == found.scores_over_after_scale == 2
    assert found.raw_max == 2.0 and found.raw_std == 0.5
    assert found.exp_inf_unshifted == 2 and found.rows_sum_inf_unshifted == 1


def test_nothing_to_count() -> None:
    empty = Operands(torch.zeros(1, 1, 0, 2), torch.zeros(1, 1, 3, 2), torch.zeros(1, 1, 3, 2))
    masked = Operands(torch.ones(1, 1, 2, 2), torch.ones(1, 1, 3, 2), torch.ones(1, 1, 3, 2), torch.zeros(2, 3) == 1)
    for x in (empty, masked):
        found = hazards(x)
        assert found.pairs == found.weights_zero == found.exp_inf_unshifted == 0
        assert found.logit_std == found.logit_max == found.weights_zero_mass_mean == 0.0


def test_masked_rows_do_not_dilute_the_lost_mass() -> None:
    k, v = torch.tensor([[[[0.0], [-20.0]]]]), torch.ones(1, 1, 2, 1)
    x = Operands(torch.ones(1, 1, 2, 1), k, v, torch.tensor([[True, True], [False, False]]))
    assert hazards(x).weights_zero_mass_mean == pytest.approx(math.exp(-20) / (1 + math.exp(-20)), rel=1e-12)


# A second count


def as_fp16(x: Tensor) -> Tensor:
    with np.errstate(over="ignore", under="ignore"):
        return torch.from_numpy(x.numpy().astype(np.float16))


@given(
    x=any_operands(), size=st.sampled_from([0.1, 1.0, 5.0, 50.0]), tile=st.sampled_from([(1, 1), (3, 2), (1024, 256)])
)
def test_counts_are_those_of_the_dense_computation(x: Operands, size: float, tile: tuple[int, int]) -> None:
    x = replace(x, q=(x.q.double() * size))
    plain = plain_attention(x)
    logits, weights = plain.logits[plain.seen], plain.weights
    with patch.dict(scores._TILE, cpu=tile):
        found = hazards(x)
    with np.errstate(over="ignore"):
        exp_inf = as_fp16(plain.logits.exp()).isinf() & plain.seen
        sum_inf = as_fp16(plain.lse.exp()).isinf()
    lost = torch.where((as_fp16(weights) == 0) & (weights > 0), weights, 0.0)
    assert found.pairs == int(plain.seen.sum())
    assert found.scores_over_before_scale == int(as_fp16(plain.raw).isinf().sum())
    assert found.scores_over_after_scale == int(as_fp16(logits).isinf().sum())
    assert found.exp_inf_unshifted == int(exp_inf.sum())
    assert found.rows_exp_inf_unshifted == int(exp_inf.any(-1).sum())
    assert found.rows_sum_inf_unshifted == int(sum_inf.sum())
    # A weight below 5e-324 is 0 in the dense computation and positive in exact arithmetic.
    beyond = (plain.logits - plain.lse[..., None] < -700) & plain.seen
    assert found.weights_zero == int((lost > 0).sum()) + int((beyond & (weights == 0)).sum())
    assert found.weights_zero_mass_max == pytest.approx(float(lost.sum(-1).max()), rel=1e-9, abs=1e-300)
    alive = plain.seen.any(-1)
    mean = float(lost.sum(-1)[alive].mean()) if alive.any() else 0.0
    assert found.weights_zero_mass_mean == pytest.approx(mean, rel=1e-9, abs=1e-300)
    assert found.raw_max == pytest.approx(float(plain.raw.abs().max()), rel=1e-12)
    assert found.raw_std == pytest.approx(float(plain.raw.std(correction=0)), rel=1e-9, abs=1e-9)
    if logits.numel():
        assert found.logit_max == pytest.approx(float(logits.abs().max()), rel=1e-12)
        assert found.logit_std == pytest.approx(float(logits.std(correction=0)), rel=1e-9, abs=1e-9)

"""The error sizes of the rule against theory, a second computation, and kernels that round as the bound assumes."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from precision.checking.problems import find_problem
from precision.checking.truth import TENSORS, YARDSTICK, Truth, Values
from precision.formats import find_format
from precision.numerics.bounds import Roundings, Sensitivity, Sizes, largest_errors
from precision.numerics.reference import attend
from precision.operands import Operands
from precision.problem import Shape
from tests.plain import plain_attention

CPU = torch.device("cpu")


def sensitivity(x: Operands, do: Tensor) -> Sensitivity:
    right = attend(x)
    return Sensitivity(right, do, right.backward(do))


def uniform(kv_len: int, v: Tensor) -> Operands:
    """q = 0, so that every weight is 1 / kv_len."""
    q, k = torch.zeros(1, 1, 1, 4, dtype=torch.float64), torch.randn(1, 1, kv_len, 4, dtype=torch.float64)
    return Operands(q, k, v)


def test_accumulation_of_equal_terms_is_that_of_their_sums() -> None:
    # out = 3: n additions and n rescalings of the accumulator and of the sum, a relative u each: sqrt(2n + 2n) 3,
    # and sum p^2 v^2 = 9 / n once per rounding of the accumulator, 2n 9 / n.
    n = 64
    v = torch.full((1, 1, n, 1), 3.0, dtype=torch.float64)
    found = sensitivity(uniform(n, v), torch.ones(1, 1, 1, 1, dtype=torch.float64)).accumulation().out
    assert float(found) == pytest.approx(math.sqrt(9 * 4 * n + 18), rel=1e-12)


def test_accumulation_grows_as_the_square_root_of_the_number_of_keys() -> None:
    sizes = []
    for n in (100, 10_000):
        v = torch.ones(1, 1, n, 1, dtype=torch.float64)
        sizes.append(float(sensitivity(uniform(n, v), torch.ones(1, 1, 1, 1, dtype=torch.float64)).accumulation().out))
    assert sizes[1] / sizes[0] == pytest.approx(10.0, rel=0.01)


def test_sums_one_after_the_other_stay_within_six_deviations() -> None:
    # fp16 sums of one row, added key by key: the model's deviation is u sqrt(sum c^2 / 3).
    n, d = 256, 64
    generator = torch.Generator().manual_seed(3)
    v = 1 + torch.rand(1, 1, n, d, generator=generator, dtype=torch.float64)
    x = uniform(n, v)
    spread = sensitivity(x, torch.ones(1, 1, 1, d, dtype=torch.float64)).accumulation().out[0, 0, 0]
    total = torch.zeros(d, dtype=torch.float16)
    for key in range(n):
        total = (total.double() + v[0, 0, key] / n).half()
    error = (total.double() - v[0, 0].mean(0)).abs()
    u = find_format("fp16").unit_roundoff
    assert (error < 6 * u * spread / math.sqrt(3)).all()
    assert (error > 0.02 * u * spread / math.sqrt(3)).float().mean() > 0.5  # and the model is not far too large


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("name", ["plain", "one-key", "causal", "additive-heads", "gqa-6-2", "peaked", "wide-range"])
def test_eager_stays_within_the_first_order_bound(name: str, dtype: str) -> None:
    truth = Truth(find_problem(name), dtype, 5, CPU)
    found = Values(*YARDSTICK.gradients(truth.call.x, truth.call.do))
    u = find_format(dtype).unit_roundoff
    for tensor in TENSORS:
        bound = getattr(truth.first_order, tensor) + 2 * u * truth.values[tensor].abs() + find_format(dtype).smallest
        assert (truth.error(tensor, found[tensor]).abs() <= bound).all(), tensor


def test_chunks_add_up_in_the_number_of_chunks() -> None:
    # dv of q = 0 over L rows: p = 1 and do = 1 with one key, so dv = L and sum a^2 = L; ceil(L / 16) additions.
    q, k = torch.zeros(1, 1, 40, 2, dtype=torch.float64), torch.ones(1, 1, 1, 2, dtype=torch.float64)
    x = Operands(q, k, torch.ones(1, 1, 1, 1, dtype=torch.float64))
    found = sensitivity(x, torch.ones(1, 1, 40, 1, dtype=torch.float64)).chunked(16)
    assert float(found.dv) == pytest.approx(math.sqrt(3 * (40.0**2 + 40)))
    assert float(found.out.abs().max()) == 0


def test_the_slope_of_the_scale_has_its_closed_form() -> None:
    # d out / d ln(scale) = sum_j p_j s_j (v_j - out) with the logits s_j.
    truth = Truth(find_problem("plain").resized(Shape(1, 2, 2, 5, 7, 4, 4)), "fp64", 1, CPU)
    plain, v = plain_attention(truth.call.x), truth.call.x.v
    weighted = plain.weights * plain.logits
    right = weighted @ v - weighted.sum(-1, keepdim=True) * plain.out
    torch.testing.assert_close(truth.scale_slope["out"], right, rtol=1e-6, atol=1e-7)


def test_shared_key_heads_have_gradients_of_their_own_shape() -> None:
    call = find_problem("gqa-6-2").make("fp64", 0, CPU)
    sizes = sensitivity(call.x, call.do)
    for found in (
        sizes.accumulation(),
        largest_errors(sizes, Roundings.every_stage(2**-11, 2**-24)),
        sizes.chunked(16),
    ):
        assert isinstance(found, Sizes)
        assert found.dk.shape == call.x.k.shape and found.dv.shape == call.x.v.shape
        assert all(bool((getattr(found, name) >= 0).all()) for name in TENSORS)

"""Attribution against laws of Shapley values, against rounding by hand, and against a published error budget."""

import itertools
import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from precision.errors import UsageError
from precision.explain.attribution import OTHERS, Attribution, Contribution, attribute
from precision.explain.bars import draw_attribution
from precision.explain.diagnosis import Diagnosis
from precision.explain.shapley import exact_shapley, sample_shapley
from precision.explain.stage_errors import Size, StageErrors
from precision.inputs.make import make_inputs, make_upstream
from precision.numerics.reference import attend
from precision.numerics.rounding import round_to
from precision.problem import Problem, Shape
from precision.report.show import listed
from precision.stages.plan import Plan
from precision.stages.presets import find_plan

CPU = torch.device("cpu")
SMALL = Problem(Shape(1, 4, 2, 13, 29, 16, 8), "fp16", "normal")
FLASH = find_plan("flash")


def size(error: Tensor) -> Size:
    return Size(float(error.square().mean().sqrt()), float(error.abs().max()))


def assert_same(found: Size, right: Size) -> None:
    assert found.rms == pytest.approx(right.rms, rel=1e-9) and found.max == pytest.approx(right.max, rel=1e-9)


# Shapley values


def gloves(owners: frozenset[str]) -> float:
    """A left glove is worth 1 with a right one; two of three players have a right one."""
    return float("left" in owners and len(owners) > 1)


def test_shapley_of_the_glove_game() -> None:
    """Two thirds for the only left glove, a sixth for each right one (Shapley & Shubik 1969)."""
    found = exact_shapley(["left", "right 1", "right 2"], gloves)
    assert found == pytest.approx({"left": 2 / 3, "right 1": 1 / 6, "right 2": 1 / 6})


def test_sampled_shapley_of_the_glove_game() -> None:
    """Gains of `left` are 0 with probability 1/3 and 1 else, so the standard error is sqrt(2)/3/sqrt(orders)."""
    players = ["left", "right 1", "right 2"]
    found, error = sample_shapley(players, gloves, orders=2000, seed=0)
    assert sum(found.values()) == pytest.approx(1.0, rel=1e-12)
    assert error["left"] == pytest.approx(math.sqrt(2) / 3 / math.sqrt(2000), rel=0.05)
    for player, right in zip(players, (2 / 3, 1 / 6, 1 / 6), strict=True):
        assert abs(found[player] - right) < 4 * error[player]
    assert (found, error) == sample_shapley(players, gloves, orders=2000, seed=0)


@given(st.lists(st.floats(-10, 10), min_size=16, max_size=16))
def test_exact_shapley_is_the_mean_over_all_orders(values: list[float]) -> None:
    players = ["a", "b", "c", "d"]

    def value(members: frozenset[str]) -> float:
        return values[sum(2**at for at, player in enumerate(players) if player in members)]

    orders = list(itertools.permutations(players))
    gains = dict.fromkeys(players, 0.0)
    for order in orders:
        for at, player in enumerate(order):
            gains[player] += value(frozenset(order[: at + 1])) - value(frozenset(order[:at]))
    found = exact_shapley(players, value)
    for player in players:
        assert found[player] == pytest.approx(gains[player] / len(orders), abs=1e-9)
    assert sum(found.values()) == pytest.approx(values[15] - values[0], abs=1e-9)


# Errors of some stages


def test_no_stage_makes_no_error() -> None:
    for error in ("total", "arithmetic"):
        found = StageErrors(SMALL, FLASH, error, backward=True).of()
        assert set(found) == {"out", "dq", "dk", "dv"}
        assert all(each.max < 1e-14 for each in found.values())


def test_the_output_alone_is_one_rounding_of_the_reference() -> None:
    right = attend(make_inputs(SMALL, CPU).exact).out
    assert_same(StageErrors(SMALL, FLASH).of("out")["out"], size(round_to(right, "fp16").double() - right))


def test_the_input_cast_alone_is_attention_of_rounded_operands() -> None:
    """Of out and of the gradients, q, k, v and dO being cast."""
    inputs, problem = make_inputs(SMALL, CPU), replace(SMALL, dtype="fp64")
    exact, rounded = attend(inputs.exact), attend(inputs.rounded)
    do = make_upstream(problem, CPU)
    found = StageErrors(SMALL, FLASH, backward=True).of("q", "k", "v", "do")
    assert_same(found["out"], size(rounded.out - exact.out))
    right, cast = exact.backward(do), rounded.backward(round_to(do, "fp16"))
    for name in ("dq", "dk", "dv"):
        assert_same(found[name], size(getattr(cast, name) - getattr(right, name)))


def test_arithmetic_has_no_input_cast() -> None:
    total, arithmetic = StageErrors(SMALL, FLASH), StageErrors(SMALL, FLASH, "arithmetic")
    assert [stage for stage in total.stages if stage not in arithmetic.stages] == ["q", "k", "v"]
    right = attend(make_inputs(SMALL, CPU).rounded).out
    assert_same(arithmetic.of("out")["out"], size(round_to(right, "fp16").double() - right))


def test_a_storage_narrower_than_the_dtype_is_a_stage_of_arithmetic() -> None:
    assert "k" in StageErrors(SMALL, replace(FLASH, k="e4m3:tensor"), "arithmetic").stages


def test_stages_of_the_backward_pass_are_none_of_the_output() -> None:
    forward = StageErrors(SMALL, FLASH)
    assert not {"do", "ds", "dq", "lse"} & set(forward.stages)
    both = StageErrors(SMALL, FLASH, backward=True)
    assert {"do", "ds", "dq", "lse"} <= set(both.stages)
    assert both.of("ds")["out"] == both.of()["out"] and both.of("ds")["dq"].rms > 1e-6


def test_an_approximate_exponential_is_a_stage() -> None:
    """FlashAttention-4's cubic is off by up to 8.6e-5 of each weight, and so out by up to 2 x 8.6e-5 sum p |v|."""
    errors = StageErrors(SMALL, replace(Plan(), exp="poly"))
    assert errors.stages == ("exp",)
    right = attend(make_inputs(SMALL, CPU).exact)
    weighted = attend(replace(right.operands, v=right.operands.v.abs())).out
    assert errors.of()["out"].max < 1e-14 < errors.of("exp")["out"].max < 2 * 8.7e-5 * float(weighted.max())
    stages = StageErrors(SMALL, replace(FLASH, exp="poly")).stages
    assert stages.index("exp") == stages.index("shifted") + 1


def test_rows_that_see_no_key_are_left_out() -> None:
    problem = Problem(Shape(1, 2, 2, 4, 4, 16, 16), "fp16", "zoo/masked-row", mask="zoo")
    assert math.isfinite(StageErrors(problem, find_plan("eager")).of("s", "out")["out"].rms)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: StageErrors(SMALL, FLASH, "totals"), "did you mean 'total'"),
        (lambda: StageErrors(SMALL, Plan(s="fp16")).of("p"), "does not round 'p'"),
        (lambda: attribute(SMALL, Plan()), "makes no error"),
        (lambda: attribute(replace(SMALL, inputs="large[std=300]"), find_plan("eager")), "out is not finite"),
        (
            lambda: attribute(SMALL, Plan(s="fp16", out="fp16"), groups={"s": ("s",)}),
            "each stage of the plan once: s, out",
        ),
    ],
)
def test_mistakes_are_one_sentence(make, said) -> None:
    with pytest.raises(UsageError, match=said):
        make()


# Attribution


def test_contributions_of_a_fused_kernel_add_up() -> None:
    """Roundings of different stages are independent: ten cross terms, each about 1/sqrt(8192 elements) of the whole."""
    problem = Problem(Shape(1, 2, 2, 64, 128, 64, 64), "fp16", "normal")
    found = attribute(problem, FLASH, backward=True)
    errors = StageErrors(problem, FLASH, backward=True)
    for tensor in ("out", "dq", "dk", "dv"):
        parts = found.of(tensor)
        everything = errors.of(*errors.stages)[tensor]
        assert found.total[tensor] == everything
        assert sum(part.shapley for part in parts) == pytest.approx(everything.mean_square, rel=1e-12)
        assert sum(part.share for part in parts) == pytest.approx(1.0, rel=1e-12)
        assert abs(found.closure(tensor)) < 0.1
        assert sorted(stage for part in parts for stage in part.stages) == sorted(errors.stages)
        for part in parts:
            rest = [stage for stage in errors.stages if stage not in part.stages]
            assert part.alone == errors.of(*part.stages)[tensor] and part.without == errors.of(*rest)[tensor]
    assert {part.group for part in found.of("out")} == {"q", "k", "v", "p", "out", OTHERS}
    assert {part.group for part in found.of("dv")} == {"q", "k", "do", "p_grad", "dv", OTHERS}
    others = next(part for part in found.of("out") if part.group == OTHERS)
    assert others.share < 1e-3


def test_a_rounding_that_finds_nothing_left_is_half_of_a_shared_error() -> None:
    """The scale 1/8 is exact, so s and scaled make the same error, alone and together; Shapley gives each a half."""
    found = attribute(Problem(Shape(1, 1, 1, 32, 64, 64, 64), "fp16"), Plan(s="fp16", scaled="fp16"))
    s, scaled = found.of("out")
    assert s.alone == scaled.alone == s.without == found.total["out"]
    assert s.share == pytest.approx(0.5, rel=1e-12) and scaled.share == pytest.approx(0.5, rel=1e-12)
    assert s.share_error == 0
    assert found.closure("out") == pytest.approx(-1.0, rel=1e-12)


def test_groups_are_rounded_together() -> None:
    groups = {"input cast": ("q", "k", "v"), "output": ("out",)}
    plan = Plan(**dict.fromkeys(("q", "k", "v", "out"), "fp16"))
    cast, output = attribute(SMALL, plan, groups=groups).of("out")
    errors = StageErrors(SMALL, plan)
    assert cast.alone == errors.of("q", "k", "v")["out"] == output.without
    assert cast.shapley + output.shapley == pytest.approx(errors.of(*errors.stages)["out"].mean_square, rel=1e-12)


def test_more_stages_than_can_be_enumerated_are_sampled_with_their_error() -> None:
    """Within 5 standard errors of all 2^10 subsets' values, stage by stage; the sum closes all the same."""
    problem = Problem(Shape(1, 1, 1, 8, 32, 16, 16), "fp16")
    plan = find_plan("eager").without("s_acc", "pv_acc", "m", "masked", "p", "pv", "weights")
    errors = StageErrors(problem, plan)
    assert len(errors.stages) == 9
    found = attribute(problem, plan, seed=3)
    right = exact_shapley(errors.stages, lambda members: errors.of(*members)["out"].mean_square)
    for part in found.of("out"):
        error = part.share_error * found.total["out"].mean_square
        assert error > 0 and abs(part.shapley - right[part.group]) < 5 * error
    assert sum(part.share for part in found.of("out")) == pytest.approx(1.0, rel=1e-12)


def test_the_error_budget_of_flash_attention_3() -> None:
    """Stages whose error hardly differs from head to head (the others are pooled over many heads elsewhere)."""
    problem = Problem(Shape(1, 2, 2, 1024, 8192, 128, 128), "fp16", "outlier")
    eager = StageErrors(problem, find_plan("eager"))
    one_tile = StageErrors(problem, replace(FLASH, max="exact", block=0))
    assert eager.of("v")["out"].rms == pytest.approx(4.9e-5, rel=0.15)
    assert eager.of("weights")["out"].rms == pytest.approx(3.4e-5, rel=0.15)
    assert eager.of("out")["out"].rms == pytest.approx(4.3e-5, rel=0.15)
    assert one_tile.of("p")["out"].rms == pytest.approx(8e-6, rel=0.15)


def test_a_tensor_without_an_error_has_nothing_to_share_out() -> None:
    """With one key its weight is 1 and the output is v, whatever the scores were rounded to."""
    found = attribute(Problem(Shape(1, 1, 1, 4, 1, 8, 8), "fp16", "normal"), find_plan("eager"), "arithmetic")
    assert found.total["out"].rms == 0.0
    assert found.tensors == [] and found.contributions == () and found.to_json()["closure"] == {}


@pytest.mark.parametrize(
    ("shares", "most"),
    [
        ({"q": (0.2, 0.0), "k": (0.6, 0.0), "v": (0.2, 0.0)}, ["k"]),
        ({"q": (0.44, 0.0), "k": (0.46, 0.0), "v": (0.10, 0.0)}, ["k", "q"]),  # 4 % less
        ({"q": (0.40, 0.0), "k": (0.45, 0.0), "v": (0.15, 0.0)}, ["k"]),  # 11 % less
        # Apart by 0.12, and the standard error of the difference of 0.06 and 0.08 is 0.1.
        ({"q": (0.38, 0.06), "k": (0.50, 0.08), "v": (0.12, 0.001)}, ["k", "q"]),
        ({"q": (0.30, 0.0), "k": (0.33, 0.0), "v": (0.31, 0.0)}, ["k", "v", "q"]),
    ],
)
def test_stages_that_cost_about_the_same_are_not_ranked(
    shares: dict[str, tuple[float, float]], most: list[str]
) -> None:
    size = Size(1e-4, 1e-3)
    parts = tuple(Contribution("out", n, (n,), size, size, share, share, error) for n, (share, error) in shares.items())
    made = Attribution(SMALL, FLASH, "total", {"out": size}, parts)
    assert [part.group for part in made.costliest()] == most
    sentence = Diagnosis(SMALL, "flash", made, (), ()).sentences[0]
    tie = "cost most, and about the same, " if len(most) > 1 else "costs most, "
    assert sentence.startswith(f"fp16: {listed(most)} {tie}{round(100 * shares['k'][0])}")


# The figure


def test_the_figure_names_tensors_and_stages() -> None:
    found = attribute(SMALL, FLASH, backward=True)
    figure = draw_attribution(found)
    for text in (
        "out, alone",
        "out, Shapley",
        "dv, alone",
        ">p_grad<",
        ">others<",
        "share of the mean square of the total error",
    ):
        assert text in figure.svg
    assert ">alpha<" not in figure.svg  # a thousandth of a bar needs no colour
    assert figure.svg == draw_attribution(found).svg
    assert "total error of out, dq, dk, dv" in figure.alt

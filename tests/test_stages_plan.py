"""A plan as a set of choices: which stages it rounds, and what contradicts."""

from dataclasses import fields

import pytest

from precision.catalogue import catalogue
from precision.errors import UsageError
from precision.stages.plan import BACKWARD_STAGES, FORWARD_STAGES, STAGES, Plan
from precision.stages.presets import PLANS, find_plan


def test_every_stage_is_a_field_that_is_exact_by_default() -> None:
    assert [field.name for field in fields(Plan) if field.default == "fp64"] == list(STAGES)
    assert list(STAGES) == [*FORWARD_STAGES, *BACKWARD_STAGES]
    assert Plan().stages == ()


def test_stages_come_in_the_order_of_the_data_path() -> None:
    assert Plan(out="fp16", q="bf16", dq="fp32", s="fp16:truncate").stages == ("q", "s", "out", "dq")


def test_some_stages_only_or_all_but_some() -> None:
    plan = Plan(s="fp16", p="bf16", out="fp16", max="online", block=64)
    assert plan.only("p", "out") == Plan(p="bf16", out="fp16", max="online", block=64)
    assert plan.without("p", "m") == Plan(s="fp16", out="fp16", max="online", block=64)
    assert plan.rounded("e4m3", "p", "e").stages == ("s", "e", "p", "out")


def test_formats_that_wait_for_the_dtype() -> None:
    plan = Plan(s="opmath", p="input:truncate", out="fp16")
    assert plan.resolve("bf16") == Plan(s="fp32", p="bf16:truncate", out="fp16")
    assert plan.resolve("fp64") == Plan(p="fp64:truncate", out="fp16")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"max": "online", "normalise": "before"}, "max=online knows the sum only at the end"),
        ({"max": "stale", "normalise": "before"}, "max=stale knows the sum only at the end"),
        ({"s": "e4m3:tensor"}, "s is computed row by row; only q, k, v, do take tensor or block"),
        ({"p": "fp17"}, "did you mean 'fp16'"),
    ],
)
def test_contradictions_are_refused(options: dict[str, str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        Plan(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize("change", [Plan().only, Plan().without, lambda stage: Plan().rounded("fp16", stage)])
def test_an_unknown_stage_gets_a_suggestion(change: object) -> None:
    with pytest.raises(UsageError, match="unknown stage 'weight'; did you mean 'weights'"):
        change("weight")  # type: ignore[operator]


@pytest.mark.parametrize("name", [name for name in PLANS if not name.startswith("fp8")])
def test_named_plans_are_exact_in_fp64(name: str) -> None:
    assert find_plan(name).resolve("fp64").stages == ()


def test_an_unknown_plan_gets_a_suggestion() -> None:
    with pytest.raises(UsageError, match="unknown plan 'flsh'; did you mean 'flash'"):
        find_plan("flsh")


def test_the_stages_are_listed() -> None:
    assert list(catalogue("stages")["stage"]) == list(STAGES)

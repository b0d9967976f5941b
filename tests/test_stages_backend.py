"""The backend `staged`: its options, its gradients, and how much of torch's own kernels a plan gives bit for bit."""

import pytest
import torch
from torch import Tensor

from precision.backends.backend import Refused, backends
from precision.backends.gradient import prepare_gradients
from precision.backends.staged import Staged, spell
from precision.errors import UsageError
from precision.numerics.reference import attend as reference
from precision.numerics.rounding import round_to
from precision.operands import Operands
from precision.stages.backward import attend_backward
from precision.stages.forward import attend
from precision.stages.plan import Plan
from precision.stages.presets import PLANS
from precision.threads import one_thread

DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}
CPU = torch.device("cpu")


def normal(*shape: int, name: str = "fp64", seed: int = 0) -> Tensor:
    return round_to(torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64), name)


def call(name: str) -> Operands:
    """Few keys: one score that another order of its sum rounds differently moves a whole row."""
    return Operands(*(normal(8, 4, length, 64, name=name, seed=seed) for seed, length in enumerate((64, 32, 32))))


def run(method: str, x: Operands) -> Tensor:
    with backends.build(method).prepare(x) as attention:
        return attention()


# Shares of elements that are the same bits


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize(
    ("method", "plan", "share"),
    [
        ("sdpa-math", "exact", 0.997),  # 99.7-99.97 % of the rounded fp64 result
        ("sdpa-math", "math", 0.997),
        ("sdpa-math-reduced", "math-reduced", 0.998),  # 99.8-99.98 %
        ("sdpa-flash", "flash-cpu", 0.99),
        ("eager", "eager", 0.995),
        ("eager[scale=before]", "eager-before", 0.995),
    ],
)
def test_a_plan_gives_torchs_kernel_bit_for_bit_but_for_the_order_of_its_sums(
    method: str, plan: str, share: float, name: str
) -> None:
    with one_thread(CPU):
        kernel, staged = run(method, call(name)), run(f"staged[plan={plan}]", call(name))
    assert staged.dtype == DTYPES[name]
    assert (kernel == staged).double().mean() >= share


@pytest.mark.parametrize(("name", "share"), [("fp16", 0.96), ("bf16", 0.99)])
def test_the_gradients_of_torchs_fused_kernel_too(name: str, share: float) -> None:
    """It adds up dk and dv in the dtype, here after 32 queries, and its backward pass has an exact exponential."""
    x, do = call(name), normal(8, 4, 64, 64, name=name, seed=5)
    shares = {}
    for method in ("staged[plan=flash-cpu,grad_chunk=32]", "staged[plan=flash-cpu,grad_acc=opmath]"):
        with (
            one_thread(CPU),
            prepare_gradients(backends.build("sdpa-flash"), x, do) as kernel,
            prepare_gradients(backends.build(method), x, do) as staged,
        ):
            given, found = vars(kernel()), vars(staged())
        shares[method] = [float((given[key] == found[key]).double().mean()) for key in ("dq", "dk", "dv")]
    right, wrong = shares.values()
    assert min(right) >= share and max(wrong[1:]) < 0.9


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize(
    ("method", "plan"),
    [("sdpa-math", "flash"), ("sdpa-math-reduced", "math"), ("sdpa-flash", "math"), ("eager", "math-reduced")],
)
def test_another_plan_does_not(method: str, plan: str, name: str) -> None:
    with one_thread(CPU):
        equal = run(method, call(name)) == run(f"staged[plan={plan}]", call(name))
    assert equal.double().mean() < 0.9


@pytest.mark.parametrize("plan", ["exact", "eager", "eager-before", "math", "math-reduced", "flash"])
def test_a_named_plan_is_attention_in_fp64(plan: str) -> None:
    x = call("fp64")
    torch.testing.assert_close(run(f"staged[plan={plan}]", x), reference(x).out, rtol=0, atol=1e-12)


@pytest.mark.parametrize("plan", ["exact", "flash", "eager", "fp8-flash3"])
def test_gradients_are_those_of_the_plan(plan: str) -> None:
    x, do = call("fp16"), normal(8, 4, 64, 64, name="fp16", seed=5)
    with prepare_gradients(backends.build(f"staged[plan={plan}]"), x, do) as differentiate:
        found = differentiate()
    wanted = attend_backward(attend(PLANS[plan], x), do)
    for name in ("dq", "dk", "dv"):
        assert torch.equal(getattr(found, name), round_to(getattr(wanted, name), "fp16"))


# Options


@pytest.mark.parametrize(
    ("text", "plan"),
    [
        ("staged", Plan()),
        ("staged[p=bf16,max=online,block=128]", Plan(p="bf16", max="online", block=128)),
        ("staged[rotate=true,q=e4m3:block128,safe=false]", Plan(rotate=True, q="e4m3:block128", safe=False)),
        ("staged[plan=flash,p=fp64,block=32]", Plan(**{**vars(PLANS["flash"]), "p": "fp64", "block": 32})),
    ],
)
def test_options_are_those_of_a_plan(text: str, plan: Plan) -> None:
    assert backends.build(text).resolved == plan  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("staged[p=bf17]", r"option p: unknown format 'bf17'; did you mean 'bf16'"),
        ("staged[plan=flsh]", "option plan: .*'flash'"),
        ("staged[w=bf16]", "has no option 'w'"),
        ("staged[block=-1]", "option block: "),
        ("staged[max=online,normalise=before]", r"before\]: max=online knows the sum only at the end"),
        ("staged[plan=math,max=online]", "needs normalise=after"),
    ],
)
def test_a_wrong_option_is_told(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        backends.build(text)


def test_one_text_for_one_method() -> None:
    assert backends.canonical("staged[plan=exact, p=bf16:nearest, block=128]") == "staged[block=128,p=bf16]"


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_is_spelled_by_the_name_that_is_nearest(name: str) -> None:
    assert spell(PLANS[name]) == ("staged" if name == "exact" else f"staged[plan={name}]")


def test_a_changed_plan_is_spelled_with_what_differs() -> None:
    plan = Staged(plan="flash", p="input:truncate", max="stale", rotate=True).resolved
    text = spell(plan)
    assert text == "staged[max=stale,p=input:truncate,plan=flash,rotate=true]"
    assert backends.build(text).resolved == plan  # type: ignore[attr-defined]


def test_max_subtraction_is_what_the_plan_does() -> None:
    assert backends.build("staged[max=stale]").max_subtraction
    assert not backends.build("staged[max=none]").max_subtraction


def test_what_a_plan_cannot_do_is_refused() -> None:
    odd = Operands(normal(1, 1, 2, 6), normal(1, 1, 3, 6), normal(1, 1, 3, 6))
    with pytest.raises(Refused, match="d_k is 6"), backends.build("staged[rotate=true]").prepare(odd):
        pass
    empty = Operands(normal(1, 1, 2, 6), normal(1, 1, 0, 6), normal(1, 1, 0, 6))
    with pytest.raises(Refused, match="a softmax needs a key"), backends.build("staged").prepare(empty):
        pass

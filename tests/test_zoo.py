"""The cases of the zoo: their right values against what follows by hand, and how they become problems."""

import math
from dataclasses import replace

import pytest
import torch
from plain import plain_attention

from precision.errors import UsageError
from precision.formats import FORMATS
from precision.inputs.find import asked_of
from precision.inputs.make import make_inputs
from precision.numerics.reference import attend
from precision.operands import Operands
from precision.problem import Problem
from precision.sweep.config import parse_config, read_config_text
from precision.sweep.grid import Task, plan
from precision.zoo.case import zoo

CPU = torch.device("cpu")
TASKS = plan(parse_config(read_config_text("zoo")))
PROBLEMS = list({task.problem.key: task.problem for task in TASKS}.values())


def operands(case: str, dtype: str = "fp32") -> Operands:
    return zoo.build(case).operands(dtype)


def right(case: str, dtype: str = "fp32") -> torch.Tensor:
    return attend(operands(case, dtype)).out


def planned(lines: str) -> list[Task]:
    return plan(parse_config(f'title = "t"\n[[sweep]]\nname = "s"\nmethods = ["eager"]\n{lines}'))


def mean_of_v(x: Operands) -> torch.Tensor:
    return x.v.double().mean(2, keepdim=True).expand(-1, -1, x.q.shape[2], -1)


def close(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.allclose(a, b, rtol=1e-12, atol=1e-12, equal_nan=True)


# Right values


@pytest.mark.parametrize("problem", [p for p in PROBLEMS if p.shape.q_len < 100 and p.scale != math.inf], ids=str)
def test_the_reference_of_every_case_agrees_with_a_second_algorithm(problem: Problem) -> None:
    x = make_inputs(problem, CPU).rounded
    assert close(attend(x).out, plain_attention(x).out)


@pytest.mark.parametrize("mask", ["bool", "additive"])
@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
def test_masked_row_is_zero_and_has_finite_gradients(mask: str, dtype: str) -> None:
    x = operands(f"masked-row[mask={mask}]", dtype)
    found = attend(x)
    assert (found.out[:, :, 2] == 0).all()
    assert (found.out[:, :, [0, 1, 3]] != 0).all()
    gradients = found.backward(torch.ones_like(found.out))
    assert all(gradient.isfinite().all() for gradient in (gradients.dq, gradients.dk, gradients.dv))


def test_the_lowest_finite_number_is_no_mask() -> None:
    """In fp16 it is small enough to cancel out; added to a score in bf16 or fp32 nothing of the score is left."""
    for dtype in ("fp32", "bf16"):
        assert close(right("finfo-min", dtype)[:, :, 2], mean_of_v(operands("finfo-min", dtype))[:, :, 2])
    x = operands("finfo-min", "fp16")
    unmasked = attend(replace(x, attn_mask=None)).out
    assert torch.allclose(attend(x).out, unmasked, rtol=0, atol=1e-10)  # 65504 takes 16 of the 53 bits
    assert (unmasked - mean_of_v(x)).abs().max() > 0.5


def test_causal_is_aligned_to_the_top_left() -> None:
    x = operands("causal-shape")
    assert close(attend(x).out[:, :, 0], x.v[:, :, 0].double())
    x = operands("causal-shape[q_len=8,kv_len=5]")
    scores = (x.q.double() @ x.k.double().mT) / 4
    for row in range(8):
        weights = scores[:, :, row, : row + 1].softmax(-1)
        assert close(attend(x).out[:, :, row], torch.einsum("bhj,bhjd->bhd", weights, x.v.double()[:, :, : row + 1]))


@pytest.mark.parametrize(("q_len", "kv_len", "error"), [(1, 8, 1.69), (5, 8, 1.87), (8, 5, 2.50)])
def test_the_other_alignment_is_off_by_the_size_of_the_values(q_len: int, kv_len: int, error: float) -> None:
    x = operands(f"causal-shape[q_len={q_len},kv_len={kv_len}]")
    bottom_right = torch.ones(q_len, kv_len, dtype=torch.bool).tril(kv_len - q_len)
    other = attend(replace(x, is_causal=False, attn_mask=bottom_right)).out
    assert (attend(x).out - other).abs().max() == pytest.approx(error, abs=0.01)


@pytest.mark.parametrize(("std", "fits_after_scale"), [(100, True), (200, False)])
def test_scores_overflow_in_fp16_and_the_winning_key_is_right(std: int, fits_after_scale: bool) -> None:
    x = operands(f"scores-overflow[std={std}]", "fp16")
    raw = x.q.double() @ x.k.double().mT
    largest = FORMATS["fp16"].largest
    assert raw.abs().max() > largest
    assert ((raw / 8).abs().max() < largest) == fits_after_scale
    winner = raw.argmax(-1)
    alone = torch.gather(x.v.double(), 2, winner[..., None].expand(-1, -1, -1, 64))
    found = attend(x).out
    assert found.isfinite().all()
    assert ((found - alone).abs().amax(-1) < 1e-9).double().mean() > 0.9


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
def test_silent_zero_is_the_mean_of_v(dtype: str) -> None:
    x = operands("silent-zero", dtype)
    logits = (x.q.double() @ x.k.double().mT) / 4
    assert (logits < -FORMATS[dtype].largest).all()
    assert close(attend(x).out, mean_of_v(x))


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
def test_scale_order_is_the_value_of_the_winning_key(dtype: str) -> None:
    x = operands("scale-order", dtype)
    raw = x.q.double() @ x.k.double().mT
    assert raw.max() > FORMATS[dtype].largest > raw.max() * x.scale
    assert close(attend(x).out, x.v[:, :, 3:4].double().expand(x.q.shape))


def test_weights_underflow() -> None:
    """4095 keys at -17.5 with v = 1000 beside one at 0 with v = 0: 1000 w / (1 + w), w = 4095 exp(-17.5)."""
    weight = 4095 * math.exp(-17.5)
    assert 1000 * weight / (1 + weight) == pytest.approx(0.10281, abs=1e-5)
    found = right("weights-underflow", "fp16")
    assert found.flatten().tolist() == pytest.approx([1000 * weight / (1 + weight)] * found.numel(), rel=1e-10)


@pytest.mark.parametrize(
    ("place", "due"),
    [
        ("q", {(0, 0, d) for d in range(16)}),
        ("k", {(0, i, d) for i in range(8) for d in range(16)}),
        ("v", {(0, i, 0) for i in range(8)}),
    ],
)
def test_nan_reaches_what_depends_on_it_and_nothing_else(place: str, due: set[tuple[int, int, int]]) -> None:
    found = right(f"nan-lost[place={place}]")[0]
    assert {tuple(index) for index in found.isnan().nonzero().tolist()} == due


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
def test_a_boolean_mask_wins_over_logits_below_minus_ten_thousand(dtype: str) -> None:
    x = operands("mask-1e4", dtype)
    kept = [j for j in range(8) if j != 5]
    assert ((x.q.double() @ x.k.double().mT / 2)[:, :, :, kept] == -22528).all()
    assert close(attend(x).out, x.v.double()[:, :, kept].mean(2, keepdim=True).expand(x.q.shape))
    as_number = right("mask-1e4[mask=additive]", dtype)  # -10000 is the largest logit by far
    assert close(as_number, x.v.double()[:, :, 5:6].expand(x.q.shape))


def test_a_mask_of_zero_and_one_is_added() -> None:
    x = operands("mask-01")
    mask = torch.tensor([[1.0 if j <= i else 0.0 for j in range(8)] for i in range(8)], dtype=torch.float64)
    added = ((x.q.double() @ x.k.double().mT) / 4 + mask).softmax(-1) @ x.v.double()
    assert close(attend(x).out, added)
    masked = attend(replace(x, attn_mask=mask > 0)).out
    assert (added - masked).abs().max() > 0.5  # who meant it as a mask


def test_a_mask_of_three_dimensions_is_one_for_each_head() -> None:
    x = operands("mask-3d")
    assert x.attn_mask is not None and x.q.shape[0] == x.q.shape[1]
    found = attend(x).out
    for head in range(2):
        alone = replace(x, q=x.q[:, [head]], k=x.k[:, [head]], v=x.v[:, [head]], attn_mask=x.attn_mask[head])
        assert close(found[:, [head]], attend(alone).out)
    for_batches = attend(replace(x, attn_mask=x.attn_mask[:, None])).out
    assert (found - for_batches).abs().max() > 0.5


def test_a_mask_in_another_dtype_stays_as_it_is() -> None:
    for mask, dtype in (("fp16", "bf16"), ("fp64", "fp32"), ("fp32", "fp16")):
        (task,) = planned(f'inputs = "zoo/mask-dtype[mask={mask}]"\ndtype = "{dtype}"')
        x = make_inputs(task.problem, CPU).rounded
        assert x.attn_mask is not None and x.attn_mask.dtype != x.q.dtype
        assert str(x.attn_mask.dtype).endswith(FORMATS[mask].torch_name)


@pytest.mark.parametrize(("q_heads", "kv_heads"), [(6, 2), (4, 1), (8, 2)])
def test_query_heads_share_key_heads_in_turn(q_heads: int, kv_heads: int) -> None:
    x = operands(f"gqa[q_heads={q_heads},kv_heads={kv_heads}]")
    found = attend(x).out
    for head in range(q_heads):
        shared = head // (q_heads // kv_heads)
        weights = ((x.q[0, head].double() @ x.k[0, shared].double().T) / 4).softmax(-1)
        assert close(found[0, head], weights @ x.v[0, shared].double())


def test_the_last_query_looks_at_the_last_key() -> None:
    """So that a kernel which loses the remainder of a tile shows in every dtype."""
    for case in ("residue", "residue[q_len=113,kv_len=203]", "residue[q_len=7,kv_len=1100]"):
        x = operands(case)
        weights = ((x.q[:, :, -1:].double() @ x.k.double().mT) / 4).softmax(-1)
        assert (weights[..., -1] > 0.5).all(), case


def test_empty() -> None:
    assert right("empty").tolist() == torch.zeros(1, 2, 8, 16).tolist()
    assert right("empty[q_len=0,kv_len=8]").shape == (1, 2, 0, 16)
    assert right("empty[batch=0,kv_len=8]").shape == (0, 2, 8, 16)


def test_scale_values() -> None:
    x = operands("scale-values")
    assert close(attend(x).out, mean_of_v(x))
    negated = attend(replace(x, q=-x.q, scale=0.5)).out
    assert close(right("scale-values[scale=-0.5]"), negated)
    assert right("scale-values[scale=nan]").isnan().all()
    assert right("scale-values[scale=inf]").isnan().all()  # every row has a score above 0, so a logit of +inf


@pytest.mark.parametrize("asks", ["gradgrad", "jvp"])
def test_a_derivative_is_asked_by_the_inputs(asks: str) -> None:
    (task,) = planned(f'inputs = "zoo/second-order[asks={asks}]"\ndtype = "fp32"')
    assert asked_of(task.problem.inputs) == asks
    (other,) = planned('inputs = "zoo/flags"\ndtype = "fp32"')
    assert asked_of(other.problem.inputs) == asked_of("normal") == ""


# Views


@pytest.mark.parametrize("layout", ["heads-inside", "transposed", "expanded", "offset"])
@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
def test_a_kernel_gets_the_view_itself(layout: str, dtype: str) -> None:
    (task,) = planned(f'inputs = "zoo/view[layout={layout}]"\ndtype = "{dtype}"')
    given = operands(f"view[layout={layout}]", dtype)
    x = make_inputs(task.problem, CPU).rounded
    for tensor, wanted in ((x.q, given.q), (x.k, given.k), (x.v, given.v)):
        assert torch.equal(tensor, wanted)
        assert (tensor.stride(), tensor.storage_offset()) == (wanted.stride(), wanted.storage_offset())
    assert not x.k.is_contiguous()
    assert {
        "heads-inside": x.k.transpose(1, 2).is_contiguous(),
        "transposed": x.k.stride(-1) == 33,
        "expanded": x.k.stride(1) == 0 and x.v.stride(1) == 0 and x.q.is_contiguous(),
        "offset": x.k.storage_offset() > 0 and x.k.stride(-1) == 1,
    }[layout]


def test_the_layout_changes_no_number() -> None:
    plain = right("view")
    for layout in ("transposed", "offset"):
        assert close(right(f"view[layout={layout}]"), plain)
    shared = operands("view[layout=expanded]")
    assert torch.equal(shared.k[:, 0], shared.k[:, 2])


@pytest.mark.parametrize("layout", ["heads-inside", "transposed", "expanded", "offset"])
def test_a_view_keeps_its_strides_on_the_way_to_a_device(layout: str) -> None:
    x = operands(f"view[layout={layout}]")
    moved = x.to(torch.device("meta"))
    for there, here in ((moved.q, x.q), (moved.k, x.k), (moved.v, x.v)):
        assert (there.shape, there.stride(), there.storage_offset()) == (
            here.shape,
            here.stride(),
            here.storage_offset(),
        )


# As problems


def test_every_case_is_in_the_configuration() -> None:
    shipped = {problem.inputs.removeprefix("zoo/").partition("[")[0] for problem in PROBLEMS}
    assert shipped == set(zoo.names())


def test_zoo_alone_is_every_case_in_its_dtypes() -> None:
    tasks = planned('inputs = "zoo"')
    wanted = {(name, dtype) for name in zoo.names() for dtype in zoo.build(name).dtypes}
    assert {(task.problem.inputs.removeprefix("zoo/"), task.problem.dtype) for task in tasks} == wanted
    assert {task.problem.dtype for task in planned('inputs = "zoo"\ndtype = "bf16"')} == {"bf16"}


@pytest.mark.parametrize("case", zoo.names())
def test_a_case_is_the_same_every_time_and_in_its_dtype(case: str) -> None:
    for dtype in zoo.build(case).dtypes:
        x, again = operands(case, dtype), operands(case, dtype)
        assert {str(t.dtype) for t in (x.q, x.k, x.v)} == {f"torch.{FORMATS[dtype].torch_name}"}
        assert all(torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in ((x.q, again.q), (x.k, again.k)))


def test_the_dtypes_of_a_case_are_problems_with_other_data() -> None:
    """Even as the unrounded inputs of one dtype, they must not be taken for those of another."""
    tasks = planned('inputs = "zoo/finfo-min"')
    assert len({task.problem.digest for task in tasks}) == len(tasks) == 3
    exact = [make_inputs(task.problem, CPU).exact for task in tasks]
    assert all(x.q.dtype == torch.float64 for x in exact)
    assert len({float(x.attn_mask.min()) for x in exact if x.attn_mask is not None}) == 3


def test_shape_mask_and_scale_come_with_the_case() -> None:
    (problem,) = (task.problem for task in planned('inputs = "zoo/scale-values[scale=-0.5]"\ndtype = "fp32"'))
    assert (problem.mask, problem.scale, problem.inputs) == ("none", -0.5, "zoo/scale-values[scale=-0.5]")
    (problem,) = (task.problem for task in planned('inputs = "zoo/causal-shape"\ndtype = "fp32"'))
    assert (problem.mask, problem.scale, problem.shape.kv_len) == ("zoo", "sqrt_dk", 8)
    assert make_inputs(problem, CPU).rounded.is_causal


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ('inputs = "zoo/masked-rows"', ["unknown zoo case", "'masked-row'"]),
        ('inputs = "zoo/masked-row[mask=float]"', ["mask", "additive"]),
        ('inputs = "zoo/residue[q_length=3]"', ["no option 'q_length'", "'q_len'"]),
        ('inputs = "zoo/residue[q_len=0]"', ["q_len", "greater than"]),
        ('inputs = "zoo/weights-underflow"\ndtype = "fp32"', ["exists in fp16 only", "fp32"]),
        ('inputs = "zoo/causal-shape"\nq_len = 8', ["'s'", "zoo inputs", "q_len"]),
        ('inputs = "zoo/causal-shape"\nmask = "none"', ["zoo inputs", "mask"]),
        ('inputs = "zoo/causal-shape"\nscale = "none"', ["zoo inputs", "scale"]),
        ('q_len = 8\nd_k = 4\nmask = "zoo"', ["zoo inputs only"]),
        ('inputs = "captured"\nmask = "zoo"', ["zoo inputs only"]),
    ],
)
def test_a_wrong_case_says_what_to_mend(lines: str, words: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        planned(lines)
    assert all(word in str(caught.value) for word in words), str(caught.value)

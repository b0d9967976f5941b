"""The problems have what their purpose says: needles with half of the weight, exact logits, rising maxima."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from precision.checking.problems import PROBLEMS, find_problem
from precision.checking.problems.problem import Excuse
from precision.errors import UsageError
from precision.zoo.case import zoo
from tests.plain import plain_attention

CPU = torch.device("cpu")


def test_names_are_unique_and_unknown_ones_get_a_suggestion() -> None:
    assert len({problem.name for problem in PROBLEMS}) == len(PROBLEMS)
    with pytest.raises(UsageError, match="causal-wide"):
        find_problem("causal-wid")


def test_every_case_of_the_zoo_is_a_problem_and_few_have_an_excuse() -> None:
    problems = {problem.name: problem for problem in PROBLEMS}
    assert {f"zoo-{name}" for name in zoo.names()} <= set(problems)
    # On these no range and no convention explains a wrong value.
    for name in ("scale-values", "mask-3d", "mask-01", "mask-1e4", "causal-shape", "gqa", "view", "residue"):
        assert not problems[f"zoo-{name}"].beyond, name
    # And on these a NaN has an excuse that a finite wrong value has not.
    for name in ("nan-lost", "padding-nan"):
        assert problems[f"zoo-{name}"].excuse == Excuse(not_finite=("out",)), name


@pytest.mark.parametrize("name", ["needles-97", "needles-300", "needles-1061"])
def test_a_needle_holds_about_half_of_the_weight(name: str) -> None:
    weights = plain_attention(find_problem(name).make("fp64", 0, CPU).x).weights.amax(-1)
    assert 0.3 < float(weights.median()) < 0.7
    assert float(weights.min()) > 0.1


@pytest.mark.parametrize("name", ["needles-97", "needles-1061", "needles-4133"])
def test_needles_sit_at_the_ends_and_at_block_boundaries(name: str) -> None:
    call = find_problem(name).make("fp64", 0, CPU)
    kv_len = call.x.k.shape[2]
    pointed = set((call.x.q @ call.x.k.mT).argmax(-1).flatten().tolist())
    assert {0, kv_len - 1} <= pointed
    largest = 2 ** (kv_len.bit_length() - 1)
    assert {largest - 1, largest, largest + 1} <= pointed


def test_a_causal_query_points_at_the_diagonal_and_at_the_first_key_it_must_not_see() -> None:
    x = find_problem("causal").make("fp64", 0, CPU).x
    best = (x.q @ x.k.mT).topk(2, -1).indices.sort(-1).values
    rows = torch.arange(x.q.shape[2] - 1)
    found = (best[:, :, :-1] == torch.stack([rows, rows + 1], -1)).all(-1)
    assert float(found.double().mean()) > 0.9


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("name", ["staircase", "offset-rows", "tail", "negative-scale"])
def test_logits_are_exact_in_every_format(name: str, dtype: str) -> None:
    problem = find_problem(name)
    exact, rounded = (plain_attention(problem.make(d, 0, CPU).x).logits for d in ("fp64", dtype))
    if not (name == "tail" and dtype == "fp16"):  # its depth depends on the format
        torch.testing.assert_close(rounded, exact, rtol=0, atol=0)
    kept = rounded[rounded.isfinite()]
    assert torch.equal(kept, kept.round())


def test_the_staircase_rises_beyond_every_exponential() -> None:
    logits = plain_attention(find_problem("staircase").make("fp64", 0, CPU).x).logits
    rising = logits[:, :, ::2].diff(dim=-1)
    assert (rising >= 0).all()
    assert float(logits[:, :, ::2, -1].min()) == 240.0  # exp(240) is infinite in fp32


def test_the_same_seed_gives_the_same_call() -> None:
    for problem in PROBLEMS[::7]:
        first, again, other = (problem.make(problem.dtypes[0], seed, CPU) for seed in (0, 0, 1))
        assert torch.equal(first.x.k.nan_to_num(), again.x.k.nan_to_num()) and torch.equal(first.do, again.do)
        assert not torch.equal(first.do, other.do) or problem.name == "do-expanded"


def test_layouts_change_the_strides_and_nothing_else() -> None:
    plain = find_problem("do-heads-inside").make("fp16", 0, CPU)
    for name in ("heads-inside", "transposed", "cut-out"):
        call = find_problem(name).make("fp16", 0, CPU)
        assert torch.equal(call.x.q, plain.x.q) and torch.equal(call.x.v, plain.x.v)
        assert not call.x.q.is_contiguous()
    assert find_problem("shared-batch").make("fp16", 0, CPU).x.k.stride(0) == 0
    assert find_problem("do-expanded").make("fp16", 0, CPU).do.stride() == (0, 0, 0, 0)


@pytest.mark.parametrize(("name", "dtype"), [("causal-301", "bf16"), ("causal-2085", "fp16")])
def test_positions_beyond_the_integers_of_a_format_hold_weight(name: str, dtype: str) -> None:
    # A query's own position and the next one are the same number of the format, and the next key is a needle.
    x = find_problem(name).make(dtype, 0, CPU).x
    position = torch.arange(x.q.shape[2]).to(x.q.dtype)
    alike = (position[:-1] == position[1:]).nonzero().flatten()[-10:]
    scores = (x.q.double() @ x.k.double().mT)[0, 0]
    assert len(alike) == 10
    assert (scores[alike, alike + 1] > scores[alike, :2].amax(-1)).all()


@pytest.mark.parametrize("name", [p.name for p in PROBLEMS if p.name.startswith("same-")])
def test_no_size_tells_the_axes_of_a_mask_apart(name: str) -> None:
    x = find_problem(name).make("fp32", 0, CPU).x
    assert x.attn_mask is not None
    assert len({*x.q.shape[:3], x.k.shape[2]}) == 1 and set(x.attn_mask.shape) <= {1, 5}
    assert bool(plain_attention(x).out.isfinite().all())
    if x.attn_mask.dim() == 2:  # taken for (B, S) it is another function
        other = plain_attention(replace(x, attn_mask=x.attn_mask[:, None, None]))
        assert float((other.out - plain_attention(x).out).abs().max()) > 0.1


def test_every_layout_of_one_tensor_meets_every_layout_of_another() -> None:
    met = {pair: set() for pair in ("qk", "qv", "kv")}
    for number in range(1, 9):
        x = find_problem(f"unlike-{number}").make("fp32", 0, CPU).x
        order = {name: sorted(range(4), key=getattr(x, name).stride().__getitem__) for name in "qkv"}
        assert len({tuple(strides) for strides in order.values()}) > 1
        for one, other in met:
            met[one + other].add((*order[one], *order[other]))
        if x.k.stride() != x.v.stride():
            assert not torch.equal(x.v.as_strided(x.k.shape, x.k.stride()), x.v)
    assert [len(found) for found in met.values()] == [8, 8, 8]  # of 9, one of which is that of ordinary inputs


def test_widths_leave_a_remainder_in_every_step() -> None:
    widths = {problem.shape.d_k for problem in PROBLEMS} | {problem.shape.d_v for problem in PROBLEMS}
    for step in (8, 16, 32, 64, 128):
        assert any(width > 64 and width % step for width in widths), step


def test_the_largest_logit_of_a_negative_scale_is_of_the_smallest_product() -> None:
    x = find_problem("negative-scale").make("fp32", 0, CPU).x
    logits = plain_attention(x).logits
    by_product = logits.gather(-1, (x.q.double() @ x.k.double().mT).argmax(-1, keepdim=True))
    assert float((logits.amax(-1, keepdim=True) - by_product).min()) > 200  # exp(200) is infinite in fp32


@pytest.mark.parametrize(("name", "dtype"), [("subnormal-out", "fp16"), ("subnormal-wide", "bf16")])
def test_outputs_are_subnormal_and_values_are_mostly_not(name: str, dtype: str) -> None:
    x = find_problem(name).make(dtype, 0, CPU).x
    smallest = torch.finfo(x.v.dtype).tiny
    assert float((x.v.double().abs() >= smallest).double().mean()) > 0.7
    out = plain_attention(x).out.abs()
    assert float(((out > 0) & (out < smallest)).double().mean()) > 0.7


def test_a_number_for_minus_infinity_shows_wherever_it_is_above_a_kept_logit() -> None:
    x = find_problem("low-kept").make("fp32", 0, CPU).x
    logits = plain_attention(x).logits
    kept = logits.where(logits.isfinite(), torch.inf).amin(-1)[0, 0]
    assert sorted(set(kept.tolist())) == [-24576.0, -3072.0, -384.0, -48.0]

"""The problems have what their purpose says: needles with half of the weight, exact logits, rising maxima."""

from __future__ import annotations

import pytest
import torch

from precision.checking.problems import PROBLEMS, find_problem
from precision.errors import UsageError
from precision.zoo.case import zoo
from tests.plain import plain_attention

CPU = torch.device("cpu")


def test_names_are_unique_and_unknown_ones_get_a_suggestion() -> None:
    assert len({problem.name for problem in PROBLEMS}) == len(PROBLEMS)
    with pytest.raises(UsageError, match="causal-wide"):
        find_problem("causal-wid")


def test_every_case_of_the_zoo_is_a_problem() -> None:
    names = {problem.name for problem in PROBLEMS}
    assert {f"zoo-{name}" for name in zoo.names()} <= names
    assert all(problem.beyond for problem in PROBLEMS if problem.name.startswith("zoo-"))


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
@pytest.mark.parametrize("name", ["staircase", "offset-rows", "tail", "low-kept"])
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

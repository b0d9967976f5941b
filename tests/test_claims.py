"""The machinery under the claims: estimates, softmax statistics, training, verdicts, pages."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import torch
from draws import normal
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from precision.claims import page
from precision.claims.claim import Judgement, claims, decide, decide_by_part
from precision.claims.run import run_claims, to_json
from precision.claims.show import render
from precision.claims.statistics import Rows, percentile, share_zero
from precision.claims.training.runs import DIVISORS, EVERY_DIVISOR, Setup, train
from precision.claims.training.task import CONTEXT, Stream
from precision.claims.write import write_ledger
from precision.errors import UsageError
from precision.experiments.effort import Effort
from precision.experiments.evidence import Evidence, Share, Value
from precision.numerics.rounding import round_to

pytestmark = pytest.mark.usefixtures("one_thread")


def stream(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# Estimates


def test_interval_by_hand() -> None:
    """Of 1, 2, 3: mean 2, standard error 1/sqrt(3), and 4.302653 is Student's t for 2 degrees of freedom."""
    seen = Evidence.of([Value("a", "s", 4, seed, value) for seed, value in enumerate((1.0, 2.0, 3.0))])
    mean, low, high, replicates = seen.at("a", "s", 4)
    assert (mean, replicates) == (2.0, 3)
    assert high - mean == mean - low == pytest.approx(4.302652729911275 / math.sqrt(3), rel=1e-9)


def test_the_interval_of_a_share_by_hand() -> None:
    """Wilson's ends are the shares x whose distance from p is t standard errors of x: |x - p| = t sqrt(x (1 - x) / n).

    n is what p (1 - p) / n = s^2 / 3 makes it; t = 4.302653 for 2 degrees of freedom.
    """
    values = (0.0, 0.0, 0.003)
    seen = Evidence.of([Share("a", "", math.nan, seed, value) for seed, value in enumerate(values)])
    p, low, high, _ = seen.at("a")
    assert p == pytest.approx(0.001, rel=1e-12)
    n = p * (1 - p) / (0.003**2 / 3 / 3)  # the variance of (0, 0, c) is c^2 / 3
    for end in (low, high):
        assert abs(end - p) == pytest.approx(4.302652729911275 * math.sqrt(end * (1 - end) / n), rel=1e-9)
    assert 0 < low < p < high < 1
    straight = Evidence.of([Value("a", "", math.nan, seed, value) for seed, value in enumerate(values)]).at("a")
    assert straight.low < 0  # what Student's t makes of them


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6))
def test_the_interval_of_a_share_stays_between_0_and_1(values: list[float]) -> None:
    seen = Evidence.of([Share("a", "", math.nan, seed, value) for seed, value in enumerate(values)])
    mean, low, high, _ = seen.at("a")
    assert 0 <= low <= mean * (1 + 1e-12) and mean * (1 - 1e-12) <= high <= 1
    other = Evidence.of([Share("a", "", math.nan, seed, 1 - value) for seed, value in enumerate(values)]).at("a")
    assert (other.low, other.high) == pytest.approx((1 - high, 1 - low), abs=1e-9)


def test_in_the_middle_the_interval_of_a_share_is_students() -> None:
    """Far from 0 and 1 the two differ by terms in t^2 / n alone."""
    values = [0.5 + offset for offset in (-0.001, 0.0, 0.001)]
    share, straight = (
        Evidence.of([kind("a", "", math.nan, seed, value) for seed, value in enumerate(values)]).at("a")
        for kind in (Share, Value)
    )
    assert (share.low, share.high) == pytest.approx((straight.low, straight.high), abs=1e-6)


def test_every_claim_marks_its_shares() -> None:
    """No interval of a quantity that is said to be a share, or that counts among all, leaves [0, 1]."""
    words = ("share", "rows with", "round to 0", "entropy", "weight, m", "infinite")
    for finding in run_claims(["one-hot", "saturation-99", "half-overflow", "shift-is-safe", "linear"], quick=True):
        frame = finding.seen.frame
        shares = frame["quantity"].map(lambda name: any(word in name for word in words))
        assert shares.any() and frame.loc[shares, "is_share"].all(), finding.id
        table = finding.seen.table()
        of_shares = table[table["quantity"].isin(frame.loc[shares, "quantity"])]
        assert of_shares["low"].min() >= 0 and of_shares["high"].max() <= 1, finding.id


def test_one_replicate_is_its_own_interval() -> None:
    seen = Evidence.of([Value("a", "", math.nan, 0, 5.0)])
    assert seen.at("a") == (5.0, 5.0, 5.0, 1)


def test_lines_and_settings_are_told_apart() -> None:
    seen = Evidence.of(
        [
            Value("a", "s", 1, 0, 1.0),
            Value("a", "s", 2, 0, 2.0),
            Value("a", "t", math.nan, 0, 3.0),
            Value("b", "s", 1, 0, 4.0),
        ]
    )
    assert seen.line("a", "s") == {1: 1.0, 2: 2.0}
    assert seen.settings("a") == {"t": 3.0}
    with pytest.raises(KeyError):
        seen.mean("a", "s", 3)
    assert len(seen.table()) == 4


# Statistics of a softmax


def test_the_jacobian_norm_is_that_of_the_matrix() -> None:
    p = normal(4, 6).softmax(-1)
    for row, norm in zip(p, Rows.of(p, stream()).jacobian_norm, strict=True):
        assert float(norm) == pytest.approx(float((row.diag() - row.outer(row)).norm()), rel=1e-12)


def test_gradients_are_those_of_autograd() -> None:
    q, k = normal(2, 5, 3).requires_grad_(), normal(2, 7, 3, seed=1)
    scores = q @ k.mT * 0.7
    scores.retain_grad()
    p = scores.softmax(-1)
    seen = Rows.of(p.detach(), stream(4))
    dp = torch.randn(p.shape, generator=stream(4), dtype=torch.float64)
    p.backward(dp)
    torch.testing.assert_close(seen.ds, scores.grad, rtol=1e-12, atol=1e-15)
    torch.testing.assert_close(seen.dq_norm(k, 0.7), q.grad.norm(dim=-1), rtol=1e-12, atol=0)


def test_peak_entropy_and_the_rest() -> None:
    """Of (1/2, 1/4, 1/4): entropy 1.5 bits of log2 3, largest 1/2."""
    p = torch.tensor([[0.25, 0.5, 0.25], [1.0, 0.0, 0.0]], dtype=torch.float64)
    seen = Rows.of(p, stream())
    assert seen.largest.tolist() == [0.5, 1.0]
    assert seen.entropy.tolist() == pytest.approx([1.5 / math.log2(3), 0.0])
    assert sorted(seen.off_peak.tolist()) == sorted(seen.ds.abs()[[0, 0, 1, 1], [0, 2, 1, 2]].tolist())


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
def test_share_zero_is_what_rounding_gives(dtype: str) -> None:
    x = torch.tensor([-1.0, 1.0]).double()[:, None] * torch.pow(2.0, torch.linspace(-160, 1, 5000).double())
    x = torch.cat([x.flatten(), 2.0 ** -torch.arange(1.0, 160.0).double()])  # the tie among them
    assert share_zero(x, dtype) == float((round_to(x, dtype) == 0).double().mean())


def test_percentile_is_the_smallest_value_that_enough_do_not_exceed() -> None:
    values = torch.arange(1.0, 1001.0)
    assert [percentile(values, percent) for percent in (50, 99.9, 0)] == [500, 999, 1]


# Tasks and training


@pytest.mark.parametrize("task", ["recall", "pool"])
def test_the_target_is_what_the_matching_tokens_carry(task: str) -> None:
    keys, values, query, target = Stream(task, replicates=2, size=5).draw(stream())
    assert keys.shape == values.shape == (2, 5, CONTEXT)
    for r in range(2):
        for b in range(5):
            carried = [int(v) for key, v in zip(keys[r, b], values[r, b], strict=True) if key == query[r, b]]
            expected = [carried.count(value) / len(carried) for value in range(8)]
            assert target[r, b].tolist() == pytest.approx(expected)
            if task == "recall":
                assert len(carried) == 1 and len(set(keys[r, b].tolist())) == CONTEXT


def run(**changes: object) -> dict[str, Tensor]:
    finished = train(Setup(**({"task": "recall", "optimiser": "sgd", "d_k": 16, "steps": 12, "seeds": 2} | changes)))
    return {"loss": finished.loss, "nan": finished.nan_steps, "temperature": finished.temperature}


def test_at_width_one_every_divisor_is_the_same() -> None:
    one = run(d_k=1)["loss"]
    assert torch.equal(one[0], one[1]) and torch.equal(one[1], one[2])
    wide = run()["loss"]
    assert not torch.equal(wide[0], wide[1]) and not torch.equal(wide[:, 0], wide[:, 1])


def test_training_learns() -> None:
    before, after = run(optimiser="adam")["loss"], run(optimiser="adam", steps=200)["loss"]
    scaled = list(DIVISORS).index("√d_k")
    assert (after[scaled] < 0.5 * before[scaled]).all()


def test_a_nan_is_counted_from_the_step_where_it_appears() -> None:
    assert run(d_k=256, dtype="fp16")["nan"].tolist() == [[0, 0]] * 3
    bare = run(d_k=256, dtype="fp16", max_subtraction=False)["nan"]
    assert bare[0].tolist() == [12, 12]


def test_another_divisor_changes_nothing_of_the_others() -> None:
    setup = Setup("recall", "sgd", 16, 12, 2)
    three, four = train(setup), train(replace(setup, divisors=EVERY_DIVISOR))
    # To the rounding of fp32 in a dozen steps: a product of more models may be summed in another order.
    torch.testing.assert_close(four.loss[:3], three.loss, rtol=1e-5, atol=0)
    losses = four.by_divisor(four.loss)
    assert list(losses) == ["1", "√d_k", "d_k", "ln d_k"]
    assert losses["ln d_k"] not in [losses[divisor] for divisor in three.divisors]


def test_only_a_learned_temperature_moves() -> None:
    assert (run()["temperature"] == 1).all()
    assert (run(learn_temperature=True)["temperature"] != 1).all()


def test_a_point_has_the_gradient_norm_and_the_share_of_zeros() -> None:
    points = train(Setup("recall", "sgd", 256, 3, 2, "fp16")).points
    assert [point.step for point in points] == [0, 1, 2]
    raw, scaled = points[0].zero[0], points[0].zero[1]
    assert (raw > 0.3).all() and (scaled < 0.01).all()
    assert (points[0].gradient_norm > 0).all()


# Verdicts


def test_a_condition_names_the_parts() -> None:
    judged = decide_by_part({"here": True, "there": False}, "Why: 1 and 2. More.")
    assert judged == Judgement("conditional", "Why: 1 and 2. More.", "True here; not there.")
    assert judged.summary == "True here; not there. Why: 1 and 2."
    assert decide_by_part({"here": True}, "").verdict == "confirmed"
    assert decide_by_part({"here": False, "there": False}, "").verdict == "refuted"
    assert [decide(holds, "").verdict for holds in (True, False)] == ["confirmed", "refuted"]


# Running and writing

CHEAP = ["peaked-example", "per-head", "not-d-model"]


def test_an_unknown_id_gets_a_suggestion() -> None:
    with pytest.raises(UsageError, match="did you mean 'jacobian'"):
        run_claims(["jacobain"])


def test_a_file_that_is_no_capture() -> None:
    with pytest.raises(UsageError, match=r"nowhere.*neither a file nor a capture"):
        run_claims(["real-tensors"], capture="nowhere")


def test_json_fails_on_an_unexpected_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[str] = []
    findings = run_claims(CHEAP, quick=True, listener=heard.append)
    assert heard == [finding.id for finding in findings] == CHEAP
    told = to_json(findings)
    assert told["verdict"] == "pass"
    assert [row["verdict"] for row in told["rows"]] == ["confirmed", "confirmed", "refuted"]
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    monkeypatch.setattr(type(claims.build("per-head")), "expected", "refuted")
    assert to_json(findings)["verdict"] == "fail"


def test_the_ledger_is_written_and_the_same_values_give_the_same_bytes(tmp_path: Path) -> None:
    findings = run_claims(CHEAP, quick=True)
    first, again = (write_ledger(findings, tmp_path / name) for name in ("a", "b"))
    for path in (first.markdown, first.html, first.measured, *first.figures):
        assert path.read_bytes() == (tmp_path / "b" / path.relative_to(tmp_path / "a")).read_bytes()
    assert [path.stem for path in first.figures] == [path.stem for path in again.figures] == CHEAP
    markdown, html = first.markdown.read_text(), first.html.read_text()
    for finding in findings:
        assert f"(figures/{finding.id}.svg)" in markdown and f'id="{finding.id}"' in html
        assert finding.judgement.grounds.split(";")[0] in markdown
    assert "Of 3 claims: 2 confirmed and 1 refuted." in markdown
    rows = pd.read_csv(first.measured)
    assert set(rows["id"]) == set(CHEAP)
    assert (
        rows.query("id == 'per-head' and quantity == 'd_k of the model' and setting == 'bert-base'")["mean"].item()
        == 64
    )


def test_the_page_says_when_a_verdict_is_not_the_expected_one(monkeypatch: pytest.MonkeyPatch) -> None:
    findings = run_claims(["per-head"], quick=True)
    monkeypatch.setattr(type(findings[0].claim), "expected", "refuted")
    assert "Another verdict than the ledger expects: per-head." in page.build_page(findings, "").verdict[0]


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot be written"):
        write_ledger(run_claims(["per-head"]), tmp_path / "file")


def test_terminal(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    findings = run_claims(["per-head", "peaked-example"])
    render(findings)
    table = capsys.readouterr().out
    assert "per-head" in table and "1.670e-05" in table and "confirmed" in table
    render(findings[:1], write_ledger(findings[:1], tmp_path))
    assert "bert-base" in (one := capsys.readouterr().out) and "per-head.svg" in one.replace("\n", "")


def test_quick_measures_less() -> None:
    assert len(Effort(quick=True).seeds) < len(Effort().seeds)
    assert Effort(quick=True).size(100, 10) == 10 and Effort().size(100, 10) == 100
